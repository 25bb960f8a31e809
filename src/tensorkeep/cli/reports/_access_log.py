"""Requests that a server answered, queued for the terminal and written as lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tensorkeep.cli.terminal import Line, Style, printable, size_text

if TYPE_CHECKING:
    from tensorkeep.server import Served


_MAX_WAITING: Final = 10_000
"""Most requests that wait to be printed; if the terminal is slower, the others are only counted."""

_MAX_BATCH: Final = 1_000

_LOOK_S: Final = 0.5
"""Seconds after which a wait looks for signals: one that arrives just before the wait begins does not end it."""


class AccessLog:
    """Requests that were answered.

    Attributes:
        n_requests: Number of requests so far.
        nbytes: Bytes of the bodies that were sent.
    """

    def __init__(self) -> None:
        self.n_requests = 0
        self.nbytes = 0
        self._waiting: SimpleQueue[Served | None] = SimpleQueue()

    def add(self, served: Served) -> None:
        """Count a request and queue it for printing; called from the server's thread."""
        self.n_requests += 1
        self.nbytes += served.nbytes
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put(served)

    def end(self) -> None:
        """Let `batches` end; safe to call from a signal handler."""
        self._waiting.put(None)

    def batches(self) -> Iterator[list[Served]]:
        """Yield requests as they arrive, until `end` is called."""
        for first in iter(self._next, None):
            batch = [first]
            for _ in range(min(self._waiting.qsize(), _MAX_BATCH)):
                served = self._waiting.get()
                if served is None:
                    self.end()  # put the end mark back for the outer loop
                    break
                batch.append(served)
            yield batch

    def _next(self) -> Served | None:
        while True:
            with suppress(Empty):
                return self._waiting.get(timeout=_LOOK_S)


def served_line(served: Served) -> Line:
    """Write a request as a line: time, status, bytes and rate, path, client."""
    is_fine = served.is_whole and served.status < 400
    rate = f"{size_text(int(served.nbytes / max(served.seconds, 1e-9)))}/s" if served.nbytes else ""
    method = "" if served.method == "GET" else f"{printable(served.method)} "
    return [
        (time.strftime("%H:%M:%S", time.localtime(served.at_s)), "dim"),
        (f"  {served.status}", "" if is_fine else _style(served)),
        (f"  {size_text(served.nbytes) if served.nbytes else '':>7}  {rate:>9}  ", "dim"),
        (method + printable(unquote(served.path)), ""),
        ("" if served.is_whole else "  cut", "error"),
        (f"  {served.client}", "dim"),
    ]


def _style(served: Served) -> Style:
    return "error" if served.status >= 500 or not served.is_whole else "warning"
