"""A copy of tensors in memory that later saves reuse: what the background writes while training continues.

Memory comes in blocks of one size, so that the next save can use them whatever its target and tensors are; a state
that has grown takes a few more blocks, and nothing moves. Fresh memory costs more than the copy into it.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import Fetched, OnDevice, StreamedTensor, TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.limits import ARENA_NBYTES, HASHED_APART_NBYTES, WRITE_NBYTES
from tensorkeep.parallel import Workers
from tensorkeep.tensors import (
    Fetching,
    LazyTensor,
    Prepared,
    StoredTensor,
    begin_fetching,
    checked_buffers,
    fetch_each,
    place_on_device,
    staging_options,
)

if TYPE_CHECKING:
    from concurrent.futures import Future


_Block: TypeAlias = npt.NDArray[np.uint8]

_BLOCK_NBYTES: Final = ARENA_NBYTES
"""Bytes of a block: more than the C library ever keeps for itself, so a dropped block is freed at once."""

_ALIGNMENT: Final = 64
"""Alignment of tensors in bytes: a cache line."""

_COPIED_AT_ONCE: Final = 2**16
"""Bytes up to which a copy costs less than letting another thread run."""

_MAX_THREADS: Final = 4
"""Threads that copy; memory is not faster with more."""

_MAX_WAITING: Final = 16
"""Copies that wait for a thread; each may hold a piece of a tensor that had to be made contiguous."""


class _Blocks:
    """Blocks of memory that no save uses at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Block] = []

    def take(self, n_blocks: int) -> list[_Block]:
        with self._lock:
            kept = max(0, len(self._free) - n_blocks)
            taken, self._free = self._free[kept:], self._free[:kept]
        return taken + [np.empty(_BLOCK_NBYTES, np.uint8) for _ in range(n_blocks - len(taken))]

    def give_back(self, blocks: Iterable[_Block]) -> None:
        with self._lock:
            self._free.extend(blocks)

    def release(self) -> None:
        with self._lock:
            self._free = []


_blocks = _Blocks()


def _forget_blocks() -> None:
    """Start without blocks in a forked child: another thread may have been taking some."""
    global _blocks  # noqa: PLW0603 - one per process
    _blocks = _Blocks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_blocks)


def release_snapshots() -> None:
    """Free the memory that `save_async` keeps for the next snapshot, as much as the largest so far took.

    The memory of unfinished saves is not freed; it is kept when they finish.
    """
    _blocks.release()


class Snapshot(msgspec.Struct, frozen=True):
    """A state as it was at one moment.

    Attributes:
        prepared: The state to write; its tensors are in `memory`, or in files.
        memory: The copies.
        on_devices: Copies that are still on their devices, and belong in `memory`.
    """

    prepared: Prepared
    memory: _Memory
    on_devices: Sequence[Fetching]

    def fetch(self) -> None:
        """Bring what is on devices to `memory`, and free each copy there once its bytes have arrived."""
        for fetching in self.on_devices:
            fetching.run(self.memory.take)

    def release(self) -> None:
        """Let the next snapshot use the memory, which must not be read any more."""
        try:
            for fetching in self.on_devices:
                fetching.end()
        finally:  # a lost device fails at every call
            self.memory.release()


SnapshotPlace: TypeAlias = Literal["host", "device"]
"""Where tensors of devices are when a snapshot is taken."""


def take_snapshot(prepared: Prepared, place: SnapshotPlace = "host") -> Snapshot:
    """Copy all tensors that the caller could change. Tensors of files are not copied.

    The calling thread copies tensors of devices, so that the copy is in order with its other work there. The copies
    may stay on the device, as far as it has room, until somebody calls `fetch`.
    """
    lazy = {name: tensor for name, tensor in prepared.tensors.items() if isinstance(tensor, LazyTensor)}
    places, nbytes = _places({name: host for name, host in prepared.to_write.items() if name not in lazy})
    memory = _Memory(nbytes)
    copies = _copies_on_devices(prepared.to_write, places) if place == "device" else {}
    _copy(prepared.to_write, {name: start for name, start in places.items() if name not in copies}, memory)
    on_devices = begin_fetching((places[name], prepared.to_write[name].nbytes, copies[name]) for name in copies)
    to_write = {
        name: _copied(host, memory, places[name]) if name in places else host
        for name, host in prepared.to_write.items()
    }
    return Snapshot(Prepared(to_write, lazy, prepared.state, prepared.aliases, prepared.metadata), memory, on_devices)


def _copies_on_devices(to_write: Mapping[str, TensorToWrite], names: Iterable[str]) -> dict[str, OnDevice]:
    """Copy tensors on their devices, as far as these have room and the budget of each allows."""
    options = staging_options()
    taken: defaultdict[str, int] = defaultdict(int)
    copies: dict[str, OnDevice] = {}
    for name in names:
        place, nbytes = place_on_device(to_write[name]), to_write[name].nbytes
        if place is None:
            continue
        device = place.memory.name
        budget = options.budget_of(device)
        copy = place.copied() if budget is None or taken[device] + nbytes <= budget else None
        if copy is not None:
            copies[name] = copy
            taken[device] += nbytes
    return copies


def _places(to_write: Mapping[str, TensorToWrite]) -> tuple[dict[str, int], int]:
    """Return where the copy of each tensor begins, and the size of all."""
    places: dict[str, int] = {}
    end = 0
    for name, host in to_write.items():
        if not isinstance(host, StoredTensor):
            places[name] = end
            end += -(-host.nbytes // _ALIGNMENT) * _ALIGNMENT
    return places, end


class _Memory:
    """Blocks as one range of bytes."""

    def __init__(self, nbytes: int) -> None:
        self.blocks = _blocks.take(-(-nbytes // _BLOCK_NBYTES))
        self._views = [block.data for block in self.blocks]

    def release(self) -> None:
        """Return the blocks; called once."""
        self._views.clear()
        _blocks.give_back(self.blocks)
        self.blocks.clear()

    def views(self, start: int, stop: int) -> Iterator[memoryview]:
        """Give the bytes [start, stop), one piece for each block that has some of them."""
        while start < stop:
            number, begin = divmod(start, _BLOCK_NBYTES)
            end = min(_BLOCK_NBYTES, begin + stop - start)
            yield self._views[number][begin:end]
            start += end - begin

    def fill(self, start: int, buffers: Iterable[Buffer]) -> None:
        """Copy buffers, one after another. Other threads run while large ones are copied."""
        for buffer in buffers:
            source = memoryview(buffer).cast("B")
            for target in self.views(start, start + len(source)):
                size = len(target)
                if size < _COPIED_AT_ONCE:
                    target[:] = source[:size]
                else:
                    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source[:size], np.uint8))
                source = source[size:]
                start += size

    def take(self, parts: Sequence[Fetched], data: memoryview) -> None:
        """Copy parts of tensors, whose numbers are their places."""
        for each in parts:
            self.fill(each.tensor + each.offset, [data[each.start : each.stop]])


class _CopiedBytes(msgspec.Struct, frozen=True, gc=False):
    """Gives the bytes of a copied tensor; untracked by the garbage collector, since there are many."""

    memory: _Memory
    start: int
    stop: int

    def __call__(self) -> Iterator[Buffer]:
        return self.memory.views(self.start, self.stop)


def _copied(host: TensorToWrite, memory: _Memory, start: int) -> TensorToWrite:
    """Describe a copy. It has no extent: shared memory was found before."""
    return StreamedTensor(host.dtype, host.shape, host.nbytes, _CopiedBytes(memory, start, start + host.nbytes))


def _copy(to_write: Mapping[str, TensorToWrite], places: Mapping[str, int], memory: _Memory) -> None:
    """Copy all tensors: small ones at once, the others by several threads; tensors of devices come last."""
    fetched: list[tuple[int, int, OnDevice]] = []
    threads = Workers(min(_MAX_THREADS, os.cpu_count() or 1), "tensorkeep-snapshot")
    waiting: deque[Future[None]] = deque()
    try:
        for name, start in places.items():
            host = to_write[name]
            place = place_on_device(host)
            if place is not None:
                fetched.append((start, host.nbytes, place))
                continue
            if host.nbytes < HASHED_APART_NBYTES or not _is_on_cpu(host):
                memory.fill(start, checked_buffers(name, host))
                continue
            for begin, buffers in _parts(start, host.nbytes, checked_buffers(name, host)):
                waiting.append(threads.submit(memory.fill, begin, buffers))
                if len(waiting) > _MAX_WAITING:
                    waiting.popleft().result()
        for future in waiting:
            future.result()
    finally:
        threads.shutdown(cancel=True)
    fetch_each(fetched, memory.take)


def _is_on_cpu(host: TensorToWrite) -> bool:
    extent = host.extent()
    return extent is not None and extent.device == "cpu"


def _parts(start: int, nbytes: int, buffers: Iterator[Buffer]) -> Iterator[tuple[int, Iterable[Buffer]]]:
    """Divide the copy of one tensor into pieces if its own memory is given; otherwise copy it as a whole."""
    first = memoryview(next(buffers)).cast("B")
    if len(first) < nbytes:
        yield start, chain([first], buffers)
        return
    for begin in range(0, nbytes, WRITE_NBYTES):
        yield start + begin, [first[begin : begin + WRITE_NBYTES]]
