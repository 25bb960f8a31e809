"""Background saves: one after another for each place, and none lost when the process ends.

Each place has a thread while there is work for it. At the end of the process the main thread waits for these threads,
before anything they need is shut down.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

from tensorkeep.errors import UnsupportedError
from tensorkeep.parallel import try_to_start

_Work: TypeAlias = Callable[[], None]


class SaveHandle:
    """A save that runs in the background. Dropping the handle does not end the save.

    Attributes:
        path: The file or directory being written, as an absolute path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_finished = threading.Event()
        self._error: BaseException | None = None
        self._is_seen = False
        self._is_started = False

    def done(self) -> bool:
        """Return whether the save has finished, with or without an error."""
        return self._is_finished.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the save is finished.

        Args:
            timeout_s: Seconds to wait at most; None waits as long as it takes.

        Returns:
            Whether it has finished, with or without an error.
        """
        return self._is_finished.wait(timeout_s)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait until the save is finished, and return its error.

        Args:
            timeout_s: Seconds to wait at most; None waits as long as it takes.

        Returns:
            The error, which counts as seen from now on; None if the save succeeded.

        Raises:
            TimeoutError: If it has not finished by then.
        """
        if not self._is_finished.wait(timeout_s):
            raise TimeoutError(f"the save to {self.path} is not finished after {timeout_s} s")
        self._is_seen = True
        return self._error

    def result(self, timeout_s: float | None = None) -> None:
        """Wait until the state is saved, completely.

        Args:
            timeout_s: Seconds to wait at most; None waits as long as it takes.

        Raises:
            TimeoutError: If it has not finished by then.
            BaseException: The error of the save, as `tensorkeep.save` or `save_checkpoint` would have raised it; the
                target is then as it was before.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error

    def __repr__(self) -> str:
        how = "running" if not self.done() else "saved" if self._error is None else f"failed: {self._error!r}"
        return f"SaveHandle({self.path!r}, {how})"

    def _finish(self, error: BaseException | None) -> None:
        self._error = error
        self._is_finished.set()

    @property
    def _has_unseen_error(self) -> bool:
        """Whether the save failed and the caller has not seen the error yet."""
        return self._error is not None and not self._is_seen


class _Queue:
    """The saves of one place.

    Attributes:
        unfinished: Saves that have a turn, in the order in which they got it.
        failed: Saves that failed; some of their errors may have been seen since.
        ready: The work of saves whose snapshot is taken.
        thread: Does the work; None while there is none.
    """

    def __init__(self) -> None:
        self.unfinished: list[SaveHandle] = []
        self.failed: list[SaveHandle] = []
        self.ready: deque[tuple[SaveHandle, _Work]] = deque()
        self.thread: threading.Thread | None = None


class _Background:
    """All background saves of this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[str, _Queue] = {}
        self._is_ending = False

    @contextmanager
    def turn(self, key: str, path: str, max_waiting: int, *, raises_earlier: bool) -> Iterator[SaveHandle]:
        """Wait for a turn; see `wait_for_turn`."""
        handle = SaveHandle(path)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._n_unfinished(key) <= max_waiting)
                queue = self._queues.setdefault(key, _Queue())
                queue.unfinished.append(handle)
            if raises_earlier:
                _raise_unseen(queue, "The save that raises it did not begin.")
            yield handle
        except BaseException:  # an interrupt may come anywhere
            with self._changed:
                self._give_up(key, handle)
            raise

    def raise_earlier(self, key: str) -> None:
        """See `raise_earlier`."""
        with self._changed:
            queue = self._queues.get(key)
        if queue is not None:
            _raise_unseen(queue, "The save that raises it has begun, as it has in the other processes.")

    def _give_up(self, key: str, handle: SaveHandle) -> None:
        queue = self._queues.get(key)
        if queue and handle in queue.unfinished and not handle._is_started:
            self._leave(key, queue, handle)

    def start(self, key: str, handle: SaveHandle, work: _Work) -> None:
        """See `start_save`."""
        with self._changed:
            queue = self._queues[key]
            if queue.thread is None and not self._is_ending:
                thread = threading.Thread(target=self._run, args=(key, queue), name="tensorkeep-save", daemon=False)
                queue.thread = thread if try_to_start(thread) else None
            queue.ready.append((handle, work))
            handle._is_started = True
            is_left_to_us = queue.thread is None
        if is_left_to_us:  # no thread can be started, or nothing would wait for one: the process is ending
            self._run(key, queue)

    def _run(self, key: str, queue: _Queue) -> None:
        """Do the work that is ready; the thread ends when there is none."""
        while True:
            with self._changed:
                if not queue.ready:
                    queue.thread = None
                    return
                handle, work = queue.ready.popleft()
            error = _outcome(work)
            del work  # it holds the snapshot's memory
            with self._changed:
                handle._finish(error)
                self._leave(key, queue, handle)

    def _leave(self, key: str, queue: _Queue, handle: SaveHandle) -> None:
        queue.unfinished.remove(handle)
        queue.failed = [each for each in (*queue.failed, handle) if each._has_unseen_error]
        if not queue.unfinished and not queue.failed:
            del self._queues[key]
        self._changed.notify_all()

    def _n_unfinished(self, key: str) -> int:
        queue = self._queues.get(key)
        return len(queue.unfinished) if queue else 0

    def end(self) -> None:
        """Wait for all saves, and report errors that the caller has not seen."""
        with self._changed:
            self._changed.wait_for(lambda: not any(map(self._n_unfinished, self._queues)))
            self._is_ending = True
            failed = [handle for queue in self._queues.values() for handle in queue.failed]
        for handle in failed:
            if handle._has_unseen_error:
                _report(handle)

    def disown(self) -> None:
        """Finish the handles in a forked child with an error: the saves belong to its parent."""
        for queue in self._queues.values():
            for handle in queue.unfinished:
                handle._is_finished = threading.Event()
                handle._finish(
                    UnsupportedError(
                        "the save runs in the process that this one was forked from",
                        path=handle.path,
                        hint="Ask for its result there",
                    )
                )


def _raise_unseen(queue: _Queue, note: str) -> None:
    """Raise the error of a failed save that the caller has not seen."""
    for failed in queue.failed:
        if failed._has_unseen_error and (error := failed.exception()):
            error.add_note(f"This is the error of an earlier save, to {failed.path}. {note}")
            raise error


def _outcome(work: _Work) -> BaseException | None:
    """Do the work and return its error, whose frames must not keep the memory of the snapshot."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - the handle raises it
        _clear_frames(error)
        return error
    return None


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _report(handle: SaveHandle) -> None:
    """Report an error as one that a thread did not catch."""
    error = handle.exception()
    if error is not None:
        thread = threading.Thread(name=f"of save_async to {handle.path}")
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))


_background = _Background()


def _start_over() -> None:
    global _background
    before, _background = _background, _Background()
    before.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


@cache
def _wait_at_exit() -> None:
    """Make the end of the process wait for all saves while threads can still be started, which saves need.

    `atexit` runs too late: `concurrent.futures` refuses work as soon as the main thread ends. It learns of that by
    the same hook as this function, and the last one registered runs first.
    """
    import concurrent.futures.thread  # noqa: F401 - registers itself

    threading._register_atexit(_end)  # type: ignore[attr-defined]


def _end() -> None:
    _background.end()


@contextmanager
def wait_for_turn(key: str, path: str, *, max_waiting: int = 0, raises_earlier: bool = True) -> Iterator[SaveHandle]:
    """Wait until a save may begin; the block takes its snapshot and starts it. An error gives the turn away."""
    _wait_at_exit()
    with _background.turn(key, path, max_waiting, raises_earlier=raises_earlier) as handle:
        yield handle


def raise_earlier(key: str) -> None:
    """Raise the error of an earlier save of a place, which nobody has seen, after another one has begun."""
    _background.raise_earlier(key)


def start_save(key: str, handle: SaveHandle, work: Callable[[], None]) -> None:
    """Do the work of a save in the background, after all earlier ones of its place."""
    _background.start(key, handle, work)
