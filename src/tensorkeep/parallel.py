"""Work done side by side, which reports the bytes it has done and stops as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from tensorkeep.limits import ARENA_NBYTES

if TYPE_CHECKING:
    from concurrent.futures import Future


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class ProgressMeter:
    """Bytes that all threads have done together."""

    def __init__(self, callback: Callable[[int, int], None] | None, total: int) -> None:
        self._callback = callback
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._is_stopped = False

    def add(self, nbytes: int) -> None:
        """Report bytes that are done."""
        with self._lock:
            if self._is_stopped:
                raise _StoppedError
            self._done += nbytes
            if self._callback is not None:
                self._callback(min(self._done, self._total), self._total)

    def counting(self) -> Callable[[int], None]:
        """Return a function that takes the bytes done so far of one part, and reports those that are new."""
        before = 0

        def report(so_far: int) -> None:
            nonlocal before
            new, before = so_far - before, so_far
            self.add(new)

        return report

    def stop(self) -> None:
        """End every thread at its next report."""
        self._is_stopped = True


class _StoppedError(Exception):
    """Another thread failed, or the caller interrupted the work."""


def parallel_map(
    work: Callable[[_Item], _Result], items: Iterable[_Item], *, n_threads: int, meter: ProgressMeter
) -> list[_Result]:
    """Do work for each item, several at a time."""
    if n_threads <= 1:
        return [work(item) for item in items]
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait  # 18 ms, which opening need not pay

    with ThreadPoolExecutor(n_threads, thread_name_prefix="tensorkeep") as threads:
        futures: list[Future[_Result]] = []
        try:
            futures.extend(threads.submit(work, item) for item in items)
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and future.exception() is None for future in futures) or not futures:
                meter.stop()
                threads.shutdown(wait=True, cancel_futures=True)
    try:
        for future in sorted(futures, key=_rank):
            future.result()
        return [future.result() for future in futures]
    finally:  # an error holds this frame: if that held the error too, neither would be freed for long
        futures.clear()
        del future


def _rank(future: Future[Any]) -> int:
    """Return what the future is sorted by whose error is to be raised: the cause before what it stopped."""
    if future.cancelled():
        return 2
    return 1 if future.exception() is None or isinstance(future.exception(), _StoppedError) else 0


def batches_of(items: Iterable[_Item], nbytes_of: Callable[[_Item], int]) -> list[list[_Item]]:
    """Group neighbours, so that small tensors cost a thread little; the batches with the most bytes come first."""
    batches: list[list[_Item]] = [[]]
    nbytes = [0]
    for item in items:
        if nbytes[-1] >= ARENA_NBYTES:
            batches.append([])
            nbytes.append(0)
        batches[-1].append(item)
        nbytes[-1] += nbytes_of(item)
    order = sorted(range(len(batches)), key=lambda place: -nbytes[place])
    return [batches[place] for place in order if batches[place]]
