"""Reading parts of saved tensors as NumPy arrays, and hardly more bytes than these parts.

Contiguous parts are read together, as whole tensors are: merged with their neighbors in the file, or mapped. Others
are read row by row from local files; from elsewhere in larger reads that include small gaps between rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import adapter_for
from tensorkeep.dtypes import BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors import AssembledReader, LazyTensor, Reader, Region, load_together, rows_of, run_of
from tensorkeep.transport import LocalFile

_Array: TypeAlias = npt.NDArray[Any]


class TensorPart(msgspec.Struct, frozen=True, eq=False):
    """A part of a saved tensor.

    Attributes:
        lazy: The tensor.
        region: The part.
    """

    lazy: LazyTensor
    region: Region

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return self.lazy.nbytes * self.region.n_elements // max(1, self.lazy.n_elements)


def read_parts(parts: Mapping[str, TensorPart]) -> dict[str, _Array]:
    """Read parts, by any name, as NumPy arrays."""
    in_numpy = _InNumpy()
    runs: dict[str, LazyTensor] = {}
    arrays: dict[str, _Array] = {}
    for key, part in parts.items():
        lazy = in_numpy(part.lazy)
        run = _run_of(lazy, part.region)
        if run is not None:
            runs[key] = run
        else:
            arrays[key] = _read(lazy, part.region)
    return arrays | load_together(runs)


class _InNumpy:
    """Gives tensors as NumPy's; tensors of one reader keep one reader, so that they are read together."""

    def __init__(self) -> None:
        self._readers: dict[Reader, Reader] = {}

    def __call__(self, lazy: LazyTensor) -> LazyTensor:
        reader = self._readers.get(lazy.reader)
        if reader is None:
            reader = self._readers[lazy.reader] = lazy.reader.with_framework("numpy")
        return LazyTensor(lazy.name, lazy.entry, reader)


def _run_of(lazy: LazyTensor, region: Region) -> LazyTensor | None:
    """Return a part whose bytes are contiguous as a tensor of its own, otherwise None."""
    if region.shape == lazy.shape:
        return lazy
    run = run_of(region, lazy.shape)
    dtype = BY_NAME.get(lazy.entry.dtype)
    if run is None or dtype is None or lazy.span is None or dtype.is_packed or lazy.reader.cast_to is not None:
        return None
    start = lazy.entry.data_offsets[0] + dtype.nbytes(run.start)
    entry = TensorEntry(dtype.name, region.shape, (start, start + dtype.nbytes(len(run))))
    return LazyTensor(lazy.name, entry, lazy.reader)


def _read(lazy: LazyTensor, region: Region) -> _Array:
    reader, source = lazy.reader, lazy.source
    if isinstance(reader, AssembledReader) and source is None:
        return _assembled(lazy, reader, region)
    if isinstance(source, LocalFile) and source.backend == "pread" and not BY_NAME[lazy.dtype].is_packed:
        return _read_rows(lazy, source, region)
    array: _Array = lazy[region.index]
    return array


def _assembled(lazy: LazyTensor, reader: AssembledReader, region: Region) -> _Array:
    """Read a part of a tensor in several pieces from each piece that has some of it."""
    in_numpy = _InNumpy()
    array: _Array | None = None
    for piece in reader.placed:
        common = region.common(piece.region)
        if common is None:
            continue
        part = _part_of(in_numpy(piece.open()), _within(common, piece.region))
        if array is None:
            array = np.empty(region.shape, part.dtype)
        array[_within(common, region).index] = part
    return lazy[region.index] if array is None else array


def _part_of(lazy: LazyTensor, region: Region) -> _Array:
    return read_parts({"": TensorPart(lazy, region)})[""]


def _within(region: Region, outer: Region) -> Region:
    """Return a region as counted from the start of another one."""
    starts, stops = (
        tuple(at - first for at, first in zip(ends, outer.starts, strict=True))
        for ends in (region.starts, region.stops)
    )
    return Region(starts, stops)


def _read_rows(lazy: LazyTensor, source: LocalFile, region: Region) -> _Array:
    """Read the rows of a part, and nothing between them."""
    dtype, span = BY_NAME[lazy.dtype], lazy.span
    elements = np.empty(region.shape, dtype.bits_name)
    into = elements.reshape(-1).view(np.uint8).data
    rows_at = [
        ((span.start if span else 0) + rows.first + row * rows.step, rows.nbytes)
        for rows in rows_of(region, lazy.shape, dtype.itemsize)
        for row in range(rows.n_rows)
    ]
    source.read_into(
        (offset, into[place * nbytes : (place + 1) * nbytes]) for place, (offset, nbytes) in enumerate(rows_at)
    )
    array: _Array = adapter_for("numpy").from_elements(elements, dtype)
    return array
