"""Copies to a device in the background: what a library implements so that loads to its devices are staged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias, TypeGuard

import msgspec

from tensorkeep.arrays._base import DenseArrays
from tensorkeep.arrays._fetching import FetchingMemory, HostBuffer, Mark
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry


class Move(msgspec.Struct, frozen=True):
    """Bytes in a host buffer that belong to a tensor.

    Attributes:
        target: The number of the tensor.
        offset: The first of them, counted from the first of the tensor's stored bytes.
        start: Where they are in the buffer; a multiple of the size of an element.
        stop: One past the last of them.
    """

    target: int
    offset: int
    start: int
    stop: int


class Target(msgspec.Struct, frozen=True, eq=False):
    """A tensor on a device, to be filled.

    Attributes:
        tensor: The tensor, contiguous.
        stored: The dtype of the bytes that it is filled with.
    """

    tensor: Any
    stored: DType


class DeviceCopies(Protocol):
    """Copies to tensors on a device, in the order of the calls."""

    def fill(self, buffer: HostBuffer, moves: Sequence[Move]) -> Mark:
        """Begin to copy from a buffer, which must not change before the mark. Called by one thread at a time."""

    def end(self) -> None:
        """Wait for all copies."""


class DeviceMemory(FetchingMemory, Protocol):
    """The memory of one device."""

    def free_nbytes(self) -> int | None:
        """Return how many bytes can be allocated; None if that is not known."""

    def allocate(self, entries: Sequence[TensorEntry]) -> list[Target]:
        """Allocate a tensor for each entry, of its dtype and with memory of its own, uninitialized."""

    def converts(self, stored: DType, dtype: DType) -> bool:
        """Say whether a tensor that is filled with numbers of another dtype gets what `DenseArrays.cast` makes."""

    def parts(self, whole: Target, places: Sequence[tuple[TensorEntry, int]]) -> list[Any]:
        """Return tensors over bytes of another, ascending, each from a byte where its elements may begin."""

    def start(self, targets: Mapping[int, Target], buffer_nbytes: int) -> DeviceCopies:
        """Start a sequence of copies, which follows all work that the caller has begun on the device."""


class StagedArrays(DenseArrays, Protocol):
    """Tensors of a library on a device that can copy in the background."""

    def device_memory(self) -> DeviceMemory | None:
        """Return the device's memory; None if it is better filled by `place`."""


def has_device_memory(adapter: DenseArrays) -> TypeGuard[StagedArrays]:
    """Whether an adapter has `device_memory`."""
    return hasattr(adapter, "device_memory")


Order: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Makes a block in which any thread works on a device as if it were the thread that got this."""


class OrderedArrays(DenseArrays, Protocol):
    """Tensors of a library on a device where each thread works in an order of its own."""

    def order(self) -> Order:
        """Return the order in which the calling thread works, on the device that it means."""


def order_of(adapter: DenseArrays) -> Order:
    """Return the order in which the calling thread works; one that changes nothing if the library has only one."""
    return adapter.order() if _is_ordered(adapter) else nullcontext


def _is_ordered(adapter: DenseArrays) -> TypeGuard[OrderedArrays]:
    return hasattr(adapter, "order")
