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

__all__ = ["LARGEST_E4M3", "ArrayAdapter", "Composed", "Extent", "FindClass", "HostTensor"]

FindClass: TypeAlias = Callable[[str], type | None]
"""Gives the class of a name such as `"package.module:Class"`, where somebody allowed it."""

LARGEST_E4M3: Final = 448.0
"""The largest number of F8_E4M3, to which larger ones are cut; some versions of the libraries make NaN of them."""


class HostTensor(msgspec.Struct, frozen=True):
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


class Composed(msgspec.Struct, frozen=True):
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
        """Return a hash that fits the equality, so that one can stand for a key of a dict."""
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
        """Make tensors over a buffer, without a copy where the library can read the bytes as they lie.

        Args:
            buffer: Writable bytes, kept alive by the tensors.
            entries: Name to entry.
            base: Byte of the buffer at which offset 0 of the entries lies.

        Returns:
            Name to tensor on the CPU, each with storage bounds of its own.

        Raises:
            DtypeError: If the library has no such dtype.
            LimitError: If a tensor has more dimensions than the library allows.
        """

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Move tensors that were made over a buffer to where they are wanted.

        Args:
            tensors: Name to tensor on the CPU.

        Returns:
            Name to tensor on the adapter's device.
        """

    def from_elements(self, elements: np.ndarray[Any, Any], dtype: DType) -> Any:
        """Make a tensor of elements that were moved as unsigned numbers.

        Args:
            elements: Array of any shape, dtype `dtype.bits_name`, one entry per element, owned by the tensor.
            dtype: What the elements really are.

        Returns:
            A tensor of the same shape (half as long in the last dimension for torch's `float4_e2m1fn_x2`).

        Raises:
            DtypeError: If the library has no such dtype.
        """

    def storage(self, data: np.ndarray[Any, Any]) -> Any:
        """Make memory that several tensors are to share, on the device.

        Args:
            data: Shape (n,), uint8, writable, kept alive by the storage; copied where elements could not lie so.

        Returns:
            What `shared` makes tensors over.
        """

    def shared(
        self, storage: Any, dtype: DType, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Any:
        """Make a tensor over a storage, without a copy: it shares memory with all others that are made so.

        Args:
            storage: What `storage` gave.
            dtype: Of the elements; those of packed dtypes are copied where the library holds them unpacked.
            offset: First element, counted in that dtype.
            shape: Elements along each dimension.
            strides: Elements from one entry to the next, along each dimension; the view lies inside the storage.

        Returns:
            The tensor.

        Raises:
            DtypeError: If the library has no such dtype.
            LimitError: If it has more dimensions or elements than the library allows.
        """

    def marked(self, tensor: Any, *, is_conj: bool, is_neg: bool, requires_grad: bool) -> Any:
        """Give a tensor what the library keeps beside its elements.

        Args:
            tensor: One of the library's tensors.
            is_conj: Whether it stands for the conjugates of its elements.
            is_neg: Whether it stands for their negatives.
            requires_grad: Whether gradients are wanted, where the library makes any.

        Returns:
            The tensor, without a copy where the library can say so of it.
        """

    def without_data(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any | None:
        """Make a tensor that has a shape and no elements.

        Args:
            dtype: Of the elements that it has not.
            shape: Elements along each dimension.
            strides: Elements from one entry to the next, along each dimension.

        Returns:
            The tensor; None where the library has none.
        """

    def composed(self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any | None:
        """Make a tensor of several: a sparse, quantized or nested one. All that the parts say is checked first.

        Args:
            kind: Such as `"sparse_coo"`, `"per_tensor_affine"`, `"nested"`.
            parts: Name to tensor of the library.
            settings: All else that it takes, such as `{"shape": (3, 4)}`.

        Returns:
            The tensor; None where the library has none of that kind.

        Raises:
            FormatError: If the parts do not fit together.
        """

    def marks_of(self, tensor: Any) -> dict[str, Any]:
        """Return what is to be said of a dense tensor beside its elements; see `tensorkeep.arrays.marks_of`."""

    def remarked(self, tensor: Any, marks: Mapping[str, Any]) -> Any:
        """Give a dense tensor its marks back.

        Args:
            tensor: One of the library's tensors.
            marks: What `marks_of` gave; other members, and marks that the library has not, are passed over.

        Returns:
            The tensor, without a copy unless its dimensions are to lie in another order.

        Raises:
            FormatError: If the marks are malformed.
        """

    def take_apart(self, value: Any) -> Composed | None:
        """Take apart what is data of the library but no dense tensor; see `tensorkeep.arrays.take_apart`."""

    def put_together(
        self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass
    ) -> Any | None:
        """Put together what `take_apart` gave.

        Args:
            kind: What it is.
            parts: Name to part; tensors are of this library.
            settings: All else that it takes.
            find_class: Gives the classes that the caller allows.

        Returns:
            The value; None if it is an instance of a class that nobody allowed, or of a device that is not there.

        Raises:
            FormatError: If the parts do not fit together.
            UnsupportedError: If there is no such kind.
        """

    def known_class(self, name: str) -> type | None:
        """Return a class of the closed registry; see `tensorkeep.arrays.known_class`."""

    def labelled(self, kind: str, text: str) -> Any | None:
        """Return the library's object that a text names.

        Args:
            kind: What it is: `"dtype"`, `"device"`, `"layout"`, `"qscheme"` or `"memory_format"`.
            text: Such as `"torch.float32"` or `"cuda:0"`.

        Returns:
            The object; None where the library has none.
        """

    def cast(self, tensor: Any, dtype: DType) -> Any:
        """Convert numbers to another floating-point dtype, rounded to nearest, ties to even.

        Every library gives the same numbers, those of torch 2.13: F64 is rounded to F32 on the way to anything
        narrower; what is too large becomes infinite in F8_E5M2, F16, BF16 and F32, NaN in the FNUZ kinds, and the
        largest number (448) in F8_E4M3, infinities too. NaN stays NaN; which of them is left to the library.

        Args:
            tensor: One of the library's tensors, of a floating-point dtype that it computes with.
            dtype: A floating-point dtype of 8 bits or more that has a sign.

        Returns:
            A tensor of the same shape, on the same device.
        """

    def host_tensor(self, tensor: Any, name: str) -> HostTensor:
        """Describe one of the library's tensors for writing.

        Args:
            tensor: The tensor.
            name: Its name, for messages.

        Returns:
            The description; it keeps the tensor alive.

        Raises:
            DtypeError: If the format has no such dtype.
        """
