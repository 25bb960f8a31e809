"""A device made of NumPy's arrays whose copies are late, and which spoils a buffer as soon as it has copied it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

import numpy as np

from tensorkeep.arrays import Fetched, HostBuffer, Move, OnDevice, Target
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError


class Buffer:
    """A `HostBuffer`."""

    def __init__(self, nbytes: int) -> None:
        self.data = memoryview(bytearray(nbytes))


class Mark:
    """An event that the device sets, without a lock that a signal could leave broken."""

    def __init__(self) -> None:
        self.is_reached = False

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while not self.is_reached:
            assert time.monotonic() < deadline
            time.sleep(0.0005)


class LateDevice:
    """A `DeviceMemory`.

    Attributes:
        name: Its name.
        n_allocated: Tensors that were allocated.
        buffers: All that were allocated.
        n_filled: Calls of `fill`.
        copies: Those that were started.
        fetches: Those from the device that were started.
        orders: What they follow.
        fails_at: The call of `fill` that fails.
        n_buffers_at_most: Buffers that can be allocated before memory is exhausted.
        n_tensors_at_most: The same of tensors.
        threads: The threads that allocated tensors and started copies.
    """

    def __init__(
        self,
        name: str = "late",
        *,
        free_nbytes: int | None = None,
        fails_at: int = -1,
        n_buffers_at_most: int = 1000,
        n_tensors_at_most: int = 10_000,
    ) -> None:
        self.n_tensors_at_most = n_tensors_at_most
        self.threads: set[threading.Thread] = set()
        self.name = name
        self.buffers: list[Buffer] = []
        self.n_allocated = 0
        self.n_filled = 0
        self.copies: list[LateCopies] = []
        self.fetches: list[LateFetches] = []
        self.orders: list[Any] = []
        self.fails_at = fails_at
        self.n_buffers_at_most = n_buffers_at_most
        self._free_nbytes = free_nbytes

    @property
    def is_copying(self) -> bool:
        """Whether a copy is under way, or may begin, that nobody waits for."""
        return any(copies.n_begun and copies.thread.is_alive() for copies in self.copies) or any(
            fetches.n_begun and fetches.thread.is_alive() for fetches in self.fetches
        )

    def holding(self, data: bytes, order: Any = None) -> OnDevice:
        """Return a tensor of bytes that is on the device."""

        def parts(nbytes: int) -> Iterator[tuple[int, bytes]]:
            for start in range(0, len(data), nbytes):
                yield len(part := data[start : start + nbytes]), part

        return OnDevice(self, parts, order, lambda: self.holding(data, order))

    def free_nbytes(self) -> int | None:
        return self._free_nbytes

    def allocate(self, entries: Sequence[TensorEntry]) -> list[Target]:
        targets: list[Target] = []
        self.threads.add(threading.current_thread())
        self.n_allocated += len(entries)
        if self.n_allocated > self.n_tensors_at_most:
            raise LimitError("the tensors do not fit in the device's memory")
        for entry in entries:
            dtype = entry.known_dtype
            assert dtype is not None
            targets.append(Target(np.full(entry.nbytes, 0xDD, np.uint8), dtype))
        return targets

    def converts(self, stored: DType, dtype: DType) -> bool:
        return stored == dtype

    def parts(self, whole: Target, places: Sequence[tuple[TensorEntry, int]]) -> list[Any]:
        return [whole.tensor[start : start + entry.nbytes] for entry, start in places]

    def host_buffer(self, nbytes: int) -> Buffer:
        if len(self.buffers) >= self.n_buffers_at_most:
            raise MemoryError("no pinned memory is left")
        self.buffers.append(Buffer(nbytes))
        return self.buffers[-1]

    def start(self, targets: Mapping[int, Target], buffer_nbytes: int) -> LateCopies:
        assert buffer_nbytes > 0
        self.threads.add(threading.current_thread())
        self.copies.append(LateCopies(self, targets))
        return self.copies[-1]

    def start_fetching(self, orders: Sequence[Any], buffer_nbytes: int) -> LateFetches:
        self.orders += orders
        self.fetches.append(LateFetches(self))
        return self.fetches[-1]


class LateFetches:
    """`DeviceFetches` made by a thread, some time after they were begun, which spoils a buffer first."""

    def __init__(self, device: LateDevice) -> None:
        self._device = device
        self._begun: SimpleQueue[tuple[HostBuffer, Sequence[Fetched], Mark] | None] = SimpleQueue()
        self._random = random.Random(7)
        self.n_begun = 0
        self._is_in_fetch = threading.Lock()
        self.thread = threading.Thread(target=self._copy, daemon=True)
        self.thread.start()

    def fetch(self, parts: Sequence[Fetched], buffer: HostBuffer) -> Mark:
        assert self._is_in_fetch.acquire(blocking=False), "two threads at once"
        try:
            if self._device.n_filled == self._device.fails_at:
                raise RuntimeError("the device is lost")
            self._device.n_filled += 1
            self.n_begun += 1
            buffer.data[:] = b"\xee" * len(buffer.data)
            self._begun.put((buffer, parts, mark := Mark()))
            return mark
        finally:
            self._is_in_fetch.release()

    def _copy(self) -> None:
        while (begun := self._begun.get()) is not None:
            buffer, parts, mark = begun
            time.sleep(self._random.random() * 0.002)
            for each in parts:
                buffer.data[each.start : each.stop] = each.part
            mark.is_reached = True

    def end(self) -> None:
        self._begun.put(None)
        self.thread.join(60)
        assert not self.thread.is_alive()


class LateCopies:
    """`DeviceCopies` made by a thread, some time after they were begun."""

    def __init__(self, device: LateDevice, targets: Mapping[int, Target]) -> None:
        self._device = device
        self._targets = targets
        self._begun: SimpleQueue[tuple[HostBuffer, Sequence[Move], Mark] | None] = SimpleQueue()
        self._random = random.Random(7)
        self.n_begun = 0
        self._is_in_fill = threading.Lock()
        self.thread = threading.Thread(target=self._copy, daemon=True)
        self.thread.start()

    def fill(self, buffer: HostBuffer, moves: Sequence[Move]) -> Mark:
        assert self._is_in_fill.acquire(blocking=False), "two threads at once"
        try:
            if self._device.n_filled == self._device.fails_at:
                raise RuntimeError("the device is lost")
            self._device.n_filled += 1
            self.n_begun += 1
            mark = Mark()
            self._begun.put((buffer, moves, mark))
            return mark
        finally:
            self._is_in_fill.release()

    def _copy(self) -> None:
        while (begun := self._begun.get()) is not None:
            buffer, moves, mark = begun
            time.sleep(self._random.random() * 0.002)
            for move in moves:
                values = np.frombuffer(buffer.data[move.start : move.stop], np.uint8)
                self._targets[move.target].tensor[move.offset : move.offset + len(values)] = values
            buffer.data[:] = b"\xee" * len(buffer.data)
            mark.is_reached = True

    def end(self) -> None:
        self._begun.put(None)
        self.thread.join(60)
        assert not self.thread.is_alive()


class _Event:
    def synchronize(self) -> None:
        pass


class _Stream:
    def __init__(self, device: Any = None) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def record_event(self) -> _Event:
        return _Event()

    def synchronize(self) -> None:
        pass


class CpuStreams:
    """What torch's modules of streams have, for the CPU: copies are complete when they begin."""

    Stream = _Stream
    current_stream = _Stream

    @staticmethod
    def stream(_: Any) -> Any:
        return nullcontext()
