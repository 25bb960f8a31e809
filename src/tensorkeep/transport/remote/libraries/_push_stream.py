"""Hands bytes to a library that pulls them in its own threads.

The caller's thread makes the pieces, and the library's thread takes them from a short queue. So the code that makes
pieces may use the same library, is interrupted at once, and its errors reach the caller unchanged.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.parallel import try_to_start

_PIECE_NBYTES: Final = 2**20
"""Bytes handed over at a time."""

_MAX_WAITING: Final = 4
"""Most pieces that wait in the queue."""

_LOOK_S: Final = 0.1
"""How often a waiting thread checks that the other one is alive."""


def send_through(send: Callable[[Iterator[Buffer]], object], pieces: Iterable[Buffer]) -> None:
    """Pass pieces to `send`, which runs in another thread; raise its error."""
    if not _send_apart(send, pieces):
        send(_cut(pieces))


def _send_apart(send: Callable[[Iterator[Buffer]], object], pieces: Iterable[Buffer]) -> bool:
    """Send from another thread, or return False if none can be started."""
    waiting: queue.Queue[Buffer | None] = queue.Queue(_MAX_WAITING)
    is_stopped = threading.Event()
    failures: list[BaseException] = []

    def taken() -> Iterator[Buffer]:
        while (piece := waiting.get()) is not None:
            yield piece
        if is_stopped.is_set():
            raise InterruptedError

    def work() -> None:
        try:
            send(taken())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=work, name="tensorkeep-send")
    if not try_to_start(thread):
        return False
    try:
        for piece in _cut(pieces):
            if not _put(waiting, piece, thread):
                break
    except BaseException:
        is_stopped.set()
        raise
    finally:
        _put(waiting, None, thread)
        _join(thread)
    _raise_first(failures)
    return True


def _raise_first(failures: list[BaseException]) -> None:
    try:
        if failures:
            raise failures[0]
    finally:
        failures.clear()  # break the cycle between this frame and the error's traceback


def _join(thread: threading.Thread) -> None:
    """Wait for a thread, even if interrupted: the library has all its data, and cannot be stopped."""
    try:
        thread.join()
    except KeyboardInterrupt:
        thread.join()
        raise


def _cut(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), _PIECE_NBYTES):
            yield view[start : start + _PIECE_NBYTES]


def _put(waiting: queue.Queue[Buffer | None], piece: Buffer | None, thread: threading.Thread) -> bool:
    """Wait until there is room; return False if the other thread has ended."""
    while thread.is_alive():
        try:
            waiting.put(piece, timeout=_LOOK_S)
        except queue.Full:
            continue
        return True
    return False
