"""A tensor that knows its shape now and reads its data when it is indexed."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tensorkeep.arrays import HostTensor
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors._reader import TensorReader
from tensorkeep.tensors._selection import parse_index
from tensorkeep.transport import ByteRange

__all__ = ["LazyTensor"]


class LazyTensor:
    """One tensor of a file: `lazy.shape` costs nothing, `lazy[10:20, ::2]` reads those elements.

    Indexing means what it means for a NumPy array of the same shape, in elements (for F4 too, where two share a
    byte), and gives a tensor that owns its memory.

    Attributes:
        name: Its name in the file.
    """

    __slots__ = ("_entry", "_reader", "name")

    def __init__(self, name: str, entry: TensorEntry, reader: TensorReader) -> None:
        self.name = name
        self._entry = entry
        self._reader = reader

    @property
    def dtype(self) -> str:
        """Name of the element type in the format, such as `"BF16"`."""
        return self._entry.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._entry.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._entry.shape)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return prod(self._entry.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._entry.nbytes

    @property
    def data_offsets(self) -> tuple[int, int]:
        """Half-open range in bytes, from the start of the file's data."""
        return self._entry.data_offsets

    def __getitem__(self, index: Any) -> Any:
        """Read a part.

        Args:
            index: Anything that NumPy's basic indexing takes, lists or arrays of integers, and boolean masks.

        Returns:
            A tensor of the file's framework, on its device.

        Raises:
            SelectionError: If the index does not fit the shape.
            DtypeError: If the dtype is unknown here or to the framework.
            TransportError: If the bytes cannot be read.
        """
        return self._reader.read(self.name, self._entry, parse_index(index, self._entry.shape))

    def load(self) -> Any:
        """Read the whole tensor, without a copy where the file can be mapped.

        Returns:
            A tensor of the file's framework, on its device; it is writable and shares memory with no other.

        Raises:
            DtypeError: If the dtype is unknown here or to the framework.
            TransportError: If the bytes cannot be read.
        """
        return self._reader.load({self.name: self._entry})[self.name]

    def view(self) -> Any | None:
        """Give the whole tensor on the CPU over the mapping that all tensors of this file share, without a copy.

        Cheaper than `load` for very many tensors; but views of the same tensor see each other's writes, and so does
        indexing.

        Returns:
            A tensor of the file's framework; None where the file is not mapped, or elements share bytes (F4, F6).

        Raises:
            DtypeError: If the dtype is unknown here or to the framework.
            TransportError: If the file is closed.
        """
        return self._reader.view(self.name, self._entry)

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the file's device.

        Args:
            tensor: A part of a `view`.

        Returns:
            The tensor where it is wanted.
        """
        return self._reader.place(tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Let `numpy.asarray(lazy)` read the whole tensor."""
        import numpy as np

        tensors = self._reader.with_framework("numpy").load({self.name: self._entry})
        return np.asarray(tensors[self.name], dtype=dtype)

    def __len__(self) -> int:
        """Return the extent of the first dimension.

        Raises:
            TypeError: If there is none.
        """
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Read one entry of the first dimension after another."""
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        """Return name, dtype, shape and size."""
        return f"LazyTensor({self.name!r}, {self.dtype}, {list(self.shape)}, {self.nbytes:,} bytes)"

    def host_tensor(self) -> HostTensor:
        """Describe the tensor for writing, as raw bytes, so that unknown dtypes can be copied too."""
        dtype = self._entry.known_dtype or DType(self.dtype, 8, -1, "", None, "uint8")
        return HostTensor(dtype, self.shape, self.nbytes, lambda: None, self._raw_buffers)

    def _raw_buffers(self) -> Iterator[Buffer]:
        for begin in range(0, self.nbytes, PACK_NBYTES):
            yield self._reader.read_bytes(self._entry, ByteRange(begin, min(begin + PACK_NBYTES, self.nbytes)))
