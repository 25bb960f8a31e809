"""What tensorkeep needs from an array library.

A library is one `Library` record in the table of `_registry` and one folder beside this file. The folder has

- a `DenseArrays`, for one device: five methods that make dense tensors of bytes and describe them for writing;
- a `SharedMemory`, if tensors can be views of one storage: mostly the same class with two more methods;
- an `ObjectCodec`, if there is data of the library that is not a dense tensor.

`numpy/` is the one to read first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeGuard

import msgspec

from tensorkeep.arrays._fetching import OnDevice
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry

if TYPE_CHECKING:
    import numpy as np


FindClass: TypeAlias = Callable[[str], type | None]
"""Returns the class for a name such as `"package.module:Class"`, if the caller allowed it."""

LARGEST_E4M3: Final = 448.0
"""The largest F8_E4M3 number. Larger ones are clamped to it: some versions of the libraries make NaN of them."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """One array library: its names, where its code is, and what it can do.

    Attributes:
        name: What users pass as `framework`, and what files say.
        aliases: Other names for it, such as those of safetensors' API.
        module: The module to look for in `sys.modules`: tensors exist only once it is imported.
        tensor_classes: Attributes of that module: the classes of its tensors, of every kind. Empty if they
            belong to another record, which this one only makes in another way.
        arrays: `"module:class"` of its `DenseArrays`. The class takes a device if `has_devices`, else nothing.
        codec: `"module:class"` of its `ObjectCodec`; None if it has no objects of its own.
        install: The command that installs it.
        has_devices: Whether tensors can be elsewhere than in the CPU's memory.
        can_share_memory: Whether several tensors can be views of one storage; its arrays are then `SharedMemory`.
        is_immutable: Whether its tensors never change, so that one may be in several places.
        alignment: Bytes. A tensor over a buffer shares its memory if its address is a multiple of this and of the
            size of an element; else it is a copy. 1 if the size of an element decides alone.
        copies: Whether it has no tensors over memory that is not its own: each is a copy.
        attributes: What it can keep of a dense tensor beside its elements: `"order"`, `"grad"`, `"class"`,
            `"weak"`.
        known_packages: Packages whose classes its codec may rebuild without the caller allowing it.
        as_reference: The record with which `safe_open` makes its tensors, as the reference does; its own if empty.
        gives_views: Whether `safe_open` hands out views of one mapping, as the reference does for torch alone.
    """

    name: str
    aliases: tuple[str, ...] = ()
    module: str
    tensor_classes: tuple[str, ...]
    arrays: str
    codec: str | None = None
    install: str
    has_devices: bool = False
    can_share_memory: bool = False
    is_immutable: bool = False
    alignment: int = 1
    copies: bool = False
    attributes: frozenset[str] = frozenset()
    known_packages: tuple[str, ...] = ()
    as_reference: str = ""
    gives_views: bool = False


class Extent(msgspec.Struct, frozen=True):
    """Where a tensor is in memory, to find tensors that share it.

    Attributes:
        device: A key that is equal for tensors on the same device.
        start: Address of the first byte.
        stop: One past the last byte; equal to `start` for a tensor without elements.
        strides: For each dimension, elements from one entry to the next; negative where an array runs backwards.
            Empty, though there are dimensions, if strides are not whole elements: such a tensor is only copied.
        is_conj: Whether the tensor is the complex conjugate of what is in memory.
        is_neg: Whether it is the negative of what is in memory.
    """

    device: str
    start: int
    stop: int
    strides: tuple[int, ...] = ()
    is_conj: bool = False
    is_neg: bool = False


class TensorToWrite(msgspec.Struct, frozen=True):
    """A tensor described for writing.

    Attributes:
        dtype: Its row in the dtype table.
        shape: Elements along each dimension, as the header will say.
        nbytes: Bytes in the file.
    """

    dtype: DType
    shape: tuple[int, ...]
    nbytes: int

    def extent(self) -> Extent | None:
        """Return where it is in memory; None if it has no memory of its own."""
        return None

    def buffers(self) -> Iterator[Buffer]:
        """Yield the file's bytes, C order and little endian: views of memory, or copies of bounded size."""
        raise NotImplementedError

    def memory(self, start: int, stop: int) -> Iterator[Buffer]:  # noqa: ARG002
        """Yield the bytes at the half-open range of addresses [start, stop), which is within one allocation."""
        return iter(())


class StreamedTensor(TensorToWrite, frozen=True):
    """A tensor whose bytes are made when they are written.

    Attributes:
        stream: Implements `buffers`.
        find_extent: Implements `extent`; None for a tensor without memory of its own.
        stream_memory: Implements `memory`.
        digest: BLAKE3 that its bytes must have, or it is not written; None if that is not known before.
        on_device: Where it is, if its device copies in the background.
    """

    stream: Callable[[], Iterator[Buffer]]
    find_extent: Callable[[], Extent | None] | None = None
    stream_memory: Callable[[int, int], Iterator[Buffer]] | None = None
    digest: bytes | None = None
    on_device: OnDevice | None = None

    def extent(self) -> Extent | None:
        return self.find_extent() if self.find_extent is not None else None

    def buffers(self) -> Iterator[Buffer]:
        return self.stream()

    def memory(self, start: int, stop: int) -> Iterator[Buffer]:
        return self.stream_memory(start, stop) if self.stream_memory is not None else iter(())


class EncodedObject(msgspec.Struct, frozen=True):
    """An object of an array library that is not a dense tensor, as tensors and plain data.

    Attributes:
        library: The library's name.
        kind: What it is, such as `"sparse_coo"`, `"dtype"`, `"generator"`.
        parts: Name to tensor, or to nested data.
        settings: Everything else, by name: plain data.
    """

    library: str
    kind: str
    parts: dict[str, Any]
    settings: dict[str, Any]

    def __hash__(self) -> int:
        return hash((self.library, self.kind, frozenset(self.settings), frozenset(self.parts)))


class DenseArrays(Protocol):
    """A library's dense tensors on one device.

    Attributes:
        is_on_host: Whether `place` leaves tensors in the CPU's memory.
        plain_classes: Each class of dense tensors, with a test whether a file can hold a given one as it is.
    """

    is_on_host: bool
    plain_classes: Mapping[type, Callable[[Any], bool]]

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Any]:
        """Make tensors on the CPU of a buffer whose byte `base` is byte 0 of the entries; no copy if that can be."""

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Move tensors that `views` made to the device."""

    def from_elements(self, elements: np.ndarray[Any, Any], dtype: DType) -> Any:
        """Make a tensor on the device of elements in the form of `tensorkeep.arrays.elements`."""

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether the library, as it is set up here, has a dtype."""

    def memory_of(self, dtype: DType) -> Literal["shared", "copied", "converted"]:
        """Say whether a tensor of a dtype shares the memory it is made of, where address and device allow it."""

    def cast(self, tensor: Any, dtype: DType) -> Any:
        """Convert numbers to another floating-point dtype, rounded to nearest, ties to even.

        All libraries give the numbers that torch 2.13 gives. F64 goes through F32 on the way to anything narrower.
        Numbers that are too large become infinite in F8_E5M2, F16, BF16 and F32 and NaN in the FNUZ dtypes; in
        F8_E4M3 they, and infinities, become ±448. NaN stays NaN, with any payload.
        """

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe a tensor of the library, on any device, for writing."""


class FilledArrays(DenseArrays, Protocol):
    """Tensors of a library that uses only its own memory, into which a file can be read."""

    def filled(
        self, entries: Mapping[str, TensorEntry], fill: Callable[[Mapping[str, memoryview]], None]
    ) -> dict[str, Any]:
        """Make tensors whose bytes `fill` writes: of those entries for which this takes less time than a copy."""


def can_be_filled(adapter: DenseArrays) -> TypeGuard[FilledArrays]:
    """Whether an adapter has `filled`."""
    return hasattr(adapter, "filled")


class ExportedArrays(DenseArrays, Protocol):
    """Tensors of a library that must not be exported through DLPack as they were loaded."""

    def for_export(self, tensor: Any) -> Any:
        """Return a tensor of the same elements that may be exported."""


def prepares_exports(adapter: DenseArrays) -> TypeGuard[ExportedArrays]:
    """Whether an adapter has `for_export`."""
    return hasattr(adapter, "for_export")


class SharedMemory(Protocol):
    """Tensors that are views of one storage."""

    def storage(self, data: Any) -> Any:
        """Make a storage of bytes, on the device, or of a tensor of U8 that is there already."""

    def view_of(
        self,
        storage: Any,
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        is_conj: bool = False,
        is_neg: bool = False,
    ) -> Any:
        """Make a tensor over a storage; offset and strides are counted in elements and have been checked."""


class ObjectCodec:
    """A library's own objects as data, and what it keeps beside the elements of dense tensors.

    A library overrides what it has. Files can say anything: whatever `decode_object` and `composed` are given must
    be checked before the library is trusted with it.
    """

    def attributes_of(self, tensor: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return what to save of a dense tensor beside its elements, in the form of `_attributes`."""
        return {}

    def with_attributes(self, tensor: Any, attributes: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Return a dense tensor that has the attributes, ignoring those that the library has not."""
        return tensor

    def encode_object(self, value: Any) -> EncodedObject | None:  # noqa: ARG002
        """Return an object as tensors and plain data; None if it is not one of the library's."""
        return None

    def decode_object(
        self,
        kind: str,  # noqa: ARG002
        parts: Mapping[str, Any],  # noqa: ARG002
        settings: Mapping[str, Any],  # noqa: ARG002
        find_class: FindClass,  # noqa: ARG002
    ) -> Any | None:
        """Return the object that `encode_object` encoded; None if it needs a class that is not allowed."""
        return None

    def known_class(self, name: str) -> type | None:  # noqa: ARG002
        """Return a class that may be rebuilt without the caller allowing it."""
        return None

    def hint(self, value: Any) -> str:  # noqa: ARG002
        """Say what to do with one of the library's tensors that cannot be saved."""
        return "Save a plain tensor with the same elements"

    def advice(self, value: Any) -> str | None:  # noqa: ARG002
        """Say what to do with an object other than a tensor that cannot be saved; None if it is not known."""
        return None

    def composed(self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any | None:  # noqa: ARG002
        """Return a tensor that a pickle makes of several: sparse, quantized, nested."""
        return None

    def labelled(self, kind: str, text: str) -> Any | None:  # noqa: ARG002
        """Return the object that a pickle names, such as a dtype or device."""
        return None

    def without_data(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any | None:  # noqa: ARG002
        """Return a tensor that has a shape and no elements."""
        return None
