"""`RecordChunks`: a field of packed records, whose numbers are not whole multiples of their size apart.

Records are taken in runs that lie together in the file, and the bytes of the field are copied out of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.formats._chunks import Checksum, StoredChunk
from tensorkeep.formats.npy._elements import Field
from tensorkeep.formats.npy._header import ArrayHeader
from tensorkeep.transport import ByteRange, ByteSource

_RUN_NBYTES: Final = 2**20
"""Most bytes of records that are read at once, unless a single one is larger."""


class RecordChunks:
    """The runs of records of an array as chunks of one field, whose numbers take `number_nbytes` each.

    The records, at least one, begin at byte `start`; `checksum` covers the whole array.
    """

    fill = b""
    fill_shape: tuple[int, ...] = ()

    def __init__(
        self,
        field: Field,
        number_nbytes: int,
        header: ArrayHeader,
        source: ByteSource,
        start: int,
        checksum: Checksum | None,
    ) -> None:
        self._field = field
        self._number_nbytes = number_nbytes
        self._record_nbytes = header.elements.nbytes
        self._extents = header.shape
        self._steps = header.steps
        self._run = _run_of(header)
        self._start = start
        self._checksum = checksum
        self.source = source
        self.shape = (*self._run, *field.shape)
        self.is_big_endian = field.is_big_endian

    def stored(self) -> Mapping[tuple[int, ...], StoredChunk]:
        """Return all runs; the last along a dimension may be shorter than the others."""
        return self._stored

    @cached_property
    def _stored(self) -> dict[tuple[int, ...], StoredChunk]:
        axes = list(zip(self._extents, self._run, self._steps, strict=True))
        inner = (0,) * len(self._field.shape)
        runs: dict[tuple[int, ...], StoredChunk] = {}
        for place in product(*(range(-(-extent // run)) for extent, run, _ in axes)):
            n_records = prod(min(run, extent - at * run) for at, (extent, run, _) in zip(place, axes, strict=True))
            start = self._start + sum(at * run * step for at, (_, run, step) in zip(place, axes, strict=True))
            span = ByteRange(start, start + n_records * self._record_nbytes)
            runs[*place, *inner] = StoredChunk(span, is_plain=False)
        return runs

    def unpack(self, chunk: StoredChunk, data: Buffer) -> Buffer:  # noqa: ARG002 - all are alike
        """Return the field of the records of a run."""
        import numpy as np

        missing = prod(self._run) * self._record_nbytes - len(data)  # of a shorter run, whose end is not looked at
        records = data if not missing else b"".join((data, bytes(missing)))
        steps = (*self._steps, *self._field.steps)
        numbers: Any = np.ndarray(self.shape, f"V{self._number_nbytes}", records, self._field.start, steps)
        content: bytes = numbers.tobytes()
        return content

    def checksums(self) -> list[Checksum]:
        """Return the checksum of the whole array."""
        return [] if self._checksum is None else [self._checksum]


def _run_of(header: ArrayHeader) -> tuple[int, ...]:
    """Return the records of a run along each dimension: all of inner ones, what fits of one, 1 of others."""
    run = [1] * len(header.shape)
    n_left = max(_RUN_NBYTES // header.elements.nbytes, 1)
    for axis in sorted(range(len(run)), key=header.steps.__getitem__):
        run[axis] = min(header.shape[axis], n_left)
        n_left //= header.shape[axis]
        if not n_left:
            break
    return tuple(run)
