"""Reads parts of an array as tensors of any library, in the chunks that it is stored in."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NoReturn, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays, StreamedTensor, adapter_for
from tensorkeep.arrays.elements import within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.zarr import ArrayLayout
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors.indexing import Selection, parse_index
from tensorkeep.tensors.readers import UnstoredReader, run_of_blocks

_Array = npt.NDArray[Any]


class ArrayFiles(Protocol):
    """What reads parts of arrays."""

    directory: str

    def read(self, name: str, layout: ArrayLayout, dtype: DType, selection: Selection) -> _Array:
        """Read a block of an array."""


class ArrayReader(UnstoredReader, frozen=True, eq=True):
    """Reads one array.

    Attributes:
        files: The arrays of its item.
        array: Its name there.
        layout: What it is; its dtype is in the dtype table.
        framework: The array library for tensors.
        device: The device for tensors.
    """

    files: ArrayFiles
    array: str
    layout: ArrayLayout
    framework: str
    device: Any = "cpu"

    @property
    def path(self) -> str:
        """The directory of the item, for messages."""
        return self.files.directory

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return adapter_for(self.framework, self.device)

    def with_framework(self, framework: str, device: Any = "cpu") -> ArrayReader:
        """Return the same reader for another array library."""
        return msgspec.structs.replace(self, framework=framework, device=device)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor."""
        with within_numpys_limits(name, entry.shape):
            elements = selection.apply(self._block(selection))
        return self.adapter.from_elements(np.require(elements, requirements="W"), self._dtype)

    def plan(self, entry: TensorEntry, selection: Selection) -> NoReturn:  # noqa: ARG002
        """Refuse: tensorstore does not say what it will read."""
        raise UnsupportedError("tensorstore does not say what a read would cost", path=self.files.directory)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements."""
        elements = run_of_blocks(name, entry, start, stop, self._dtype.bits_name, self._block)
        return self.adapter.from_elements(elements, self._dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read: a row of chunks, so that each is read once."""
        return max(1, prod(self.layout.chunk[:1]) * prod(entry.shape[1:]))

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> StreamedTensor:  # noqa: ARG002
        """Describe a tensor for writing; it is read one row of chunks at a time."""
        return StreamedTensor(self._dtype, entry.shape, entry.nbytes, lambda: self._buffers(entry))

    def _buffers(self, entry: TensorEntry) -> Iterator[Buffer]:
        if not entry.nbytes:
            return
        if not entry.shape:
            yield self._block(parse_index((), ())).tobytes()
            return
        n_rows = self.layout.chunk[0]
        for start in range(0, entry.shape[0], n_rows):
            rows = self._block(parse_index(slice(start, start + n_rows), entry.shape)).reshape(-1).view(np.uint8)
            for begin in range(0, len(rows), PACK_NBYTES):
                # A copy: what is still being hashed or written must not keep all rows while the next are read.
                yield rows[begin : begin + PACK_NBYTES].tobytes()
            del rows

    @property
    def _dtype(self) -> DType:
        return ALL_BY_NAME[self.layout.dtype or ""]

    def _block(self, selection: Selection) -> _Array:
        block = self.files.read(self.array, self.layout, self._dtype, selection)
        return block.view(self._dtype.bits_name)
