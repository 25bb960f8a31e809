"""What tensors need from an array library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LARGEST_E4M3", "ArrayAdapter", "Extent", "HostTensor"]

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
    """

    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    extent: Callable[[], Extent | None]
    buffers: Callable[[], Iterator[Buffer]]


class Extent(msgspec.Struct, frozen=True):
    """Where a tensor lies in memory, for finding tensors that share it.

    Attributes:
        device: A key that is equal for tensors on the same device.
        start: Address of the first byte.
        stop: One past the last byte; equal to `start` for a tensor without elements.
    """

    device: str
    start: int
    stop: int


class ArrayAdapter(Protocol):
    """One array library.

    Attributes:
        name: `"numpy"` or `"torch"`.
        is_on_host: Whether tensors stay in the CPU's memory.
    """

    name: str
    is_on_host: bool

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
