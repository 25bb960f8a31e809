"""Buffers that a device fills, and threads that use what is in them meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from tensorkeep.arrays import Fetched, OnDevice
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.from_device._plan import Task, plan_fetches
from tensorkeep.tensors.to_device import HostBuffers, StagingOptions, buffer_nbytes_of, staging_options

_POLL_S: Final = 0.001

Take: TypeAlias = Callable[[Sequence[Fetched], memoryview], None]
"""Uses parts of tensors in a buffer. All parts of a tensor are taken by one thread, in order."""


def fetch_each(tensors: Iterable[tuple[int, int, OnDevice]], take: Take) -> None:
    """Copy tensors, given with their numbers and bytes, to the CPU, and let threads take what has arrived.

    After an error or an interrupt, no thread takes anything any more, and the device copies nothing.
    """
    options = staging_options()
    for group in _by_device(tensors):
        fetching = Fetching(group, options)
        try:
            fetching.run(take)
        finally:
            fetching.end()  # again, if an interrupt cut it short


def begin_fetching(tensors: Iterable[tuple[int, int, OnDevice]]) -> list[Fetching]:
    """Prepare to copy tensors as they are after all work that was begun in their orders, for each of their devices.

    The options of the current `staging` block apply, whichever thread copies.
    """
    options = staging_options()
    return [Fetching(group, options) for group in _by_device(tensors)]


def _by_device(tensors: Iterable[tuple[int, int, OnDevice]]) -> Iterable[list[tuple[int, int, OnDevice]]]:
    groups: dict[str, list[tuple[int, int, OnDevice]]] = {}
    for each in tensors:
        groups.setdefault(each[2].memory.name, []).append(each)
    return groups.values()


class Fetching:
    """Copies from one device to buffers, which threads empty.

    It is made by a thread while the tensors are as they should be copied; any thread can run it.
    """

    def __init__(self, tensors: Sequence[tuple[int, int, OnDevice]], options: StagingOptions) -> None:
        buffer_nbytes = buffer_nbytes_of(options)
        memory = tensors[0][2].memory
        self._tasks = list(plan_fetches(tensors, buffer_nbytes))
        n_buffers = min(options.host_budget // buffer_nbytes, sum(map(len, self._tasks)))
        self._n_threads = min(options.n_threads, n_buffers)
        self._buffers = HostBuffers(memory, n_buffers, buffer_nbytes)
        self._copies = memory.start_fetching([tensor.order for _, _, tensor in tensors], buffer_nbytes)
        self._lock = threading.Lock()
        self._busy: set[threading.Thread] = set()
        self._is_over = False

    def run(self, take: Take) -> None:
        """Copy all tensors; each is released once it has been taken."""

        def carry_out(task: Task) -> None:
            task.reverse()
            while task:
                if not self._pass_on(task.pop(), take):
                    return

        try:
            parallel_for_each(self._tasks, carry_out, n_threads=self._n_threads)
        finally:
            self.end()

    def _pass_on(self, parts: list[Fetched], take: Take) -> bool:
        """Fill a buffer, and let `take` have it; False if all is over."""
        thread = threading.current_thread()
        buffer = self._buffers.take()
        with self._lock:
            if self._is_over:
                return False
            mark = self._copies.fetch(parts, buffer)
            self._busy.add(thread)
        try:
            mark.wait()
            take(parts, buffer.data)
        finally:
            self._busy.discard(thread)
        self._buffers.give(buffer, mark)
        return True

    def end(self) -> None:
        """Begin no more, and wait for what has begun; calling it again completes a call that was interrupted."""
        with self._lock:
            self._is_over = True
        # An interrupt may have left this thread among the busy ones; it could also break a `threading.Condition`
        while self._busy - {threading.current_thread()}:
            time.sleep(_POLL_S)
        self._copies.end()
        self._tasks.clear()
        self._buffers.release()
