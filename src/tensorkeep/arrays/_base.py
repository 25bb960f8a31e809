"""What tensors need from an array library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry

if TYPE_CHECKING:
    import numpy as np


FindClass: TypeAlias = Callable[[str], type | None]
"""Gives the class of a name such as `"package.module:Class"`, where somebody allowed it."""

LARGEST_E4M3: Final = 448.0
"""The largest number of F8_E4M3, to which larger ones are cut; some versions of the libraries make NaN of them."""


class TensorToWrite(msgspec.Struct, frozen=True):
    """A tensor on its way to a file.

    Attributes:
        dtype: Its row in the dtype table.
        shape: Elements along each dimension, as the header will say.
        nbytes: Bytes it will take.
        extent: Tells where it lies in memory, or None where it has no memory of its own.
        buffers: Gives those bytes in order, in C order and little endian: views of the tensor's own memory where
            it lies so, else copies of bounded size, one at a time.
        memory: Gives the bytes [start, stop) of the addresses that `extent` speaks of, which lie in one allocation:
            a view of them on the CPU, copies of bounded size from a device. None where there are no addresses.
    """

    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    extent: Callable[[], Extent | None]
    buffers: Callable[[], Iterator[Buffer]]
    memory: Callable[[int, int], Iterator[Buffer]] | None = None


class Extent(msgspec.Struct, frozen=True):
    """Where a tensor lies in memory, for finding tensors that share it.

    Attributes:
        device: A key that is equal for tensors on the same device.
        start: Address of the first byte.
        stop: One past the last byte; equal to `start` for a tensor without elements.
        strides: Elements from one entry to the next, along each dimension of the tensor's shape as the header will
            say it; negative where NumPy's go backwards. Empty, though the tensor has dimensions, where they cannot
            be told in elements: such a tensor can only be copied.
        is_conj: Whether the tensor stands for the conjugates of what is in memory.
        is_neg: Whether it stands for their negatives.
    """

    device: str
    start: int
    stop: int
    strides: tuple[int, ...] = ()
    is_conj: bool = False
    is_neg: bool = False


class EncodedObject(msgspec.Struct, frozen=True):
    """A value of an array library that is data but no dense tensor, taken apart.

    Attributes:
        library: `"numpy"` or `"torch"`.
        kind: What it is, such as `"sparse_coo"`, `"dtype"`, `"generator"`.
        parts: Name to tensor, or to what is a tree of data again.
        settings: All else that it takes, by name: plain data.
    """

    library: str
    kind: str
    parts: dict[str, Any]
    settings: dict[str, Any]

    def __hash__(self) -> int:
        return hash((self.library, self.kind, frozenset(self.settings), frozenset(self.parts)))


class ArrayAdapter(Protocol):
    """One array library.

    Attributes:
        name: `"numpy"` or `"torch"`.
        is_on_host: Whether tensors stay in the CPU's memory.
        plain_classes: Classes of dense tensors, and what says whether a file can hold a tensor of it as it is.
    """

    name: str
    is_on_host: bool
    plain_classes: Mapping[type, Callable[[Any], bool]]

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Any]:
        """Make tensors over a buffer, without a copy where the library can read the bytes as they lie."""

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Move tensors that were made over a buffer to where they are wanted."""

    def from_elements(self, elements: np.ndarray[Any, Any], dtype: DType) -> Any:
        """Make a tensor of elements that were moved as unsigned numbers."""

    def storage(self, data: np.ndarray[Any, Any]) -> Any:
        """Make memory that several tensors are to share, on the device."""

    def shared(
        self, storage: Any, dtype: DType, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Any:
        """Make a tensor over a storage, without a copy: it shares memory with all others that are made so."""

    def marked(self, tensor: Any, *, is_conj: bool, is_neg: bool, requires_grad: bool) -> Any:
        """Give a tensor what the library keeps beside its elements."""

    def without_data(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any | None:
        """Make a tensor that has a shape and no elements."""

    def composed(self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any | None:
        """Make a tensor of several: a sparse, quantized or nested one. All that the parts say is checked first."""

    def attributes_of(self, tensor: Any) -> dict[str, Any]:
        """Return what is to be said of a dense tensor beside its elements; see `tensorkeep.arrays.attributes_of`."""

    def with_attributes(self, tensor: Any, marks: Mapping[str, Any]) -> Any:
        """Give a dense tensor its marks back."""

    def encode_object(self, value: Any) -> EncodedObject | None:
        """Take apart what is data of the library but no dense tensor; see `tensorkeep.arrays.encode_object`."""

    def decode_object(
        self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass
    ) -> Any | None:
        """Put together what `encode_object` gave."""

    def known_class(self, name: str) -> type | None:
        """Return a class of the closed registry; see `tensorkeep.arrays.known_class`."""

    def labelled(self, kind: str, text: str) -> Any | None:
        """Return the library's object that a text names."""

    def cast(self, tensor: Any, dtype: DType) -> Any:
        """Convert numbers to another floating-point dtype, rounded to nearest, ties to even.

        Every library gives the same numbers, those of torch 2.13: F64 is rounded to F32 on the way to anything
        narrower; what is too large becomes infinite in F8_E5M2, F16, BF16 and F32, NaN in the FNUZ kinds, and the
        largest number (448) in F8_E4M3, infinities too. NaN stays NaN; which of them is left to the library.
        """

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe one of the library's tensors for writing."""
