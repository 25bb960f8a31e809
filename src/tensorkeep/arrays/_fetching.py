"""Copies from a device in the background: what a library implements so that saves from it are staged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec


class HostBuffer(Protocol):
    """Memory of the CPU that the device can copy from and to by itself.

    Attributes:
        data: The bytes.
    """

    data: memoryview


class Mark(Protocol):
    """A point in the sequence of a device's copies."""

    def wait(self) -> None:
        """Wait until the device has reached it."""


class Fetched(msgspec.Struct, frozen=True, eq=False):
    """A part of a tensor on a device, and its place in a host buffer.

    Attributes:
        tensor: The number of the tensor.
        offset: The part's first byte, counted from the tensor's first in C order.
        start: Where the part begins in the buffer.
        stop: One past its last byte there.
        part: The part, on the device.
    """

    tensor: int
    offset: int
    start: int
    stop: int
    part: Any


class DeviceFetches(Protocol):
    """Copies from a device, in the order of the calls."""

    def fetch(self, parts: Sequence[Fetched], buffer: HostBuffer) -> Mark:
        """Begin to copy adjacent parts to a buffer, complete after the mark. Called by one thread at a time."""

    def end(self) -> None:
        """Wait for all copies."""


class FetchingMemory(Protocol):
    """The memory of one device, to copy from.

    Attributes:
        name: The same for all objects of one device.
    """

    name: str

    def host_buffer(self, nbytes: int) -> HostBuffer:
        """Allocate a buffer to copy from or to."""

    def start_fetching(self, orders: Sequence[Any], buffer_nbytes: int) -> DeviceFetches:
        """Start a sequence of copies, which follows all work that was begun in some orders."""


class OnDevice(msgspec.Struct, frozen=True, eq=False):
    """Where a tensor is, if its device copies in the background.

    Attributes:
        memory: The memory of its device.
        parts: Cuts it into parts of at most so many bytes, in C order, and gives the bytes of each and the part.
        order: The order of work in which it was written; only its library knows what that is.
        copied: Begins to copy it on its device, in this order, and says where the copy is; None without room for it.
    """

    memory: FetchingMemory
    parts: Callable[[int], Iterator[tuple[int, Any]]]
    order: Any
    copied: Callable[[], OnDevice | None]
