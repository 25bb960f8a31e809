"""Work in parallel threads: it reports progress in bytes, and the first failure stops all of it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import takewhile
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from tensorkeep.limits import ARENA_NBYTES

if TYPE_CHECKING:
    from concurrent.futures import Future


Progress: TypeAlias = Callable[[int, int], None]
"""Takes the bytes that are done, and the total."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class ProgressMeter:
    """Counts the bytes that all threads have done."""

    def __init__(self, callback: Progress | None, total: int) -> None:
        self._callback = callback
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._is_stopped = False

    @classmethod
    def of(cls, callback: Progress | None, total: int) -> ProgressMeter | None:
        """Return a meter, or None if nobody listens."""
        return None if callback is None else cls(callback, total)

    def add(self, nbytes: int) -> None:
        """Report bytes that are done."""
        with self._lock:
            if self._is_stopped:
                raise _StoppedError
            self._done += nbytes
            if self._callback is not None:
                self._callback(min(self._done, self._total), self._total)

    def counting(self) -> Callable[[int], None]:
        """Return a function that takes the bytes of one part done so far, and reports the new ones."""
        before = 0

        def report(so_far: int) -> None:
            nonlocal before
            new, before = so_far - before, so_far
            self.add(new)

        return report

    def stop(self) -> None:
        """Stop every thread at its next report."""
        self._is_stopped = True


class _StoppedError(Exception):
    """Another thread failed, or the caller interrupted the work."""


def try_to_start(thread: threading.Thread) -> bool:
    """Start a thread; False if the system allows no more, as in containers, or the interpreter is ending."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def may_start(n_threads: int) -> bool:
    """Say whether the system lets this process start some more threads."""
    is_over = threading.Event()
    threads = [threading.Thread(target=is_over.wait, daemon=True) for _ in range(n_threads)]
    try:
        return all(map(try_to_start, threads))
    finally:
        is_over.set()


class Workers:
    """Up to `n_threads` threads for the work of one caller, who does it alone if none can be started."""

    def __init__(self, n_threads: int, name: str) -> None:
        self._n_threads = n_threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, work: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Let a thread do some work, or do it now."""
        from concurrent.futures import Future  # late: it takes 18 ms, and most commands do not need it

        future: Future[_Result] = Future()
        if len(self._threads) < self._n_threads:
            self._add_thread()
        if self._threads:
            self._tasks.put((future, work, arguments))
        else:
            _carry_out(future, work, arguments)
            error = future.exception()
            if error is not None and not isinstance(error, Exception):  # an interrupt of this thread
                raise error
        return future

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        if try_to_start(thread):
            self._threads.append(thread)
        else:
            self._n_threads = len(self._threads)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            _carry_out(*task)
            del task  # it holds the future, which holds a failure's traceback

    def shutdown(self, *, cancel: bool = False) -> None:
        """Wait for all work, or only for what has begun."""
        while cancel:
            try:
                task = self._tasks.get_nowait()
            except Empty:
                break
            if task is not None:
                task[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


def _carry_out(future: Future[_Result], work: Callable[..., _Result], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work(*arguments))
    except BaseException as error:  # noqa: BLE001 - `result` raises it
        future.set_exception(error)
        del future, work, arguments  # break the cycle between this frame and the error's traceback


def parallel_map(
    work: Callable[[_Item], _Result], items: Iterable[_Item], *, n_threads: int, meter: ProgressMeter
) -> list[_Result]:
    """Return the result of `work` for each item, in order; the first failure stops the other threads."""
    items = list(items)
    if n_threads <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    from concurrent.futures import FIRST_EXCEPTION, wait  # imported late: it takes 18 ms

    with Workers(n_threads, "tensorkeep") as threads:
        futures: list[Future[_Result]] = []
        try:
            for item in items:
                futures.append(threads.submit(work, item))
                if futures[-1].done() and futures[-1].exception() is not None:
                    break
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and future.exception() is None for future in futures) or not futures:
                meter.stop()
                threads.shutdown(cancel=True)
    try:
        for future in sorted(futures, key=_rank):
            future.result()
        return [future.result() for future in futures]
    finally:  # break the cycle between this frame and the error's traceback
        futures.clear()
        del future


def read_ahead(
    work: Callable[[_Item], _Result], items: Iterable[_Item], n_threads: int, n_ahead: int | None = None
) -> Iterator[_Result]:
    """Give the result of `work` for each item, in order; threads work on the next items meanwhile.

    Up to `n_ahead` results wait; `n_threads` if it is None.
    """
    with Workers(n_threads, "tensorkeep-ahead") as threads:
        futures: deque[Future[_Result]] = deque()
        try:
            for item in items:
                futures.append(threads.submit(work, item))
                if len(futures) > (n_ahead or n_threads):
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            threads.shutdown(cancel=True)
            futures.clear()  # break the cycle between this frame and an error's traceback


def _rank(future: Future[Any]) -> int:
    """Sort key that puts the cause of a failure before the threads that it stopped."""
    if future.cancelled():
        return 2
    return 1 if future.exception() is None or isinstance(future.exception(), _StoppedError) else 0


def batches_of(items: Iterable[_Item], nbytes_of: Callable[[_Item], int]) -> list[list[_Item]]:
    """Group neighboring items into batches of about `ARENA_NBYTES`, largest first."""
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


def parallel_for_each(items: Collection[_Item], work: Callable[[_Item], object], *, n_threads: int) -> None:
    """Run `work` for each item in parallel threads, including this one; the first failure ends the others."""
    n_others = min(n_threads, len(items)) - 1
    if n_others <= 0:
        for item in items:
            work(item)
        return
    waiting = iter(items)
    lock = threading.Lock()
    failures: list[BaseException] = []
    is_stopped = threading.Event()

    def run() -> None:
        while not is_stopped.is_set():
            with lock:
                found = next(waiting, is_stopped)
            if found is is_stopped:
                return
            try:
                work(found)  # type: ignore[arg-type]
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
                is_stopped.set()

    threads = [threading.Thread(target=run, name="tensorkeep-read", daemon=True) for _ in range(n_others)]
    try:
        started = list(takewhile(try_to_start, threads))
        run()
        if all(isinstance(failure, Exception) for failure in failures):  # an interrupt does not wait for slow answers
            for thread in started:
                thread.join()
    finally:
        is_stopped.set()
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()  # break the cycle between this frame and the error's traceback


class LibraryThreads:
    """Whether the threads of a library still run.

    Attributes:
        are_lost: Whether this process was forked from one that had started them. The library would wait
            for them forever.
    """

    def __init__(self) -> None:
        self._are_started = False
        self.are_lost = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._lose)

    def start(self) -> None:
        """Note that the library is in use."""
        self._are_started = True

    def _lose(self) -> None:
        self.are_lost = self._are_started


def scaled_report(report: Callable[[int], None], total: int, counted: int) -> Callable[[int], None]:
    """Return a function that takes parts of what is counted, and reports as large parts of another total."""
    done = told = 0

    def scaled(nbytes: int) -> None:
        nonlocal done, told
        done += nbytes
        new = total * done // counted - told
        told += new
        report(new)

    return scaled
