"""Requests that a server answered, on their way to the terminal, and as lines for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tensorkeep.cli.terminal import Line, Style, printable, size_text

if TYPE_CHECKING:
    from tensorkeep.server import Served


_MAX_WAITING: Final = 10_000
"""Requests that wait to be printed; while more come than a terminal can take, they are only counted."""

_MAX_BATCH: Final = 1_000


class AccessLog:
    """Requests that were answered.

    Attributes:
        n_requests: How many so far.
        nbytes: Bytes of the bodies that were sent for them.
    """

    def __init__(self) -> None:
        self.n_requests = 0
        self.nbytes = 0
        self._waiting: SimpleQueue[Served | None] = SimpleQueue()

    def add(self, served: Served) -> None:
        """Count a request, and keep it until it is printed; from the server's thread."""
        self.n_requests += 1
        self.nbytes += served.nbytes
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put(served)

    def end(self) -> None:
        """Let `batches` end; from a handler of signals, too."""
        self._waiting.put(None)

    def batches(self) -> Iterator[list[Served]]:
        """Give requests as they come, until somebody calls `end`."""
        for first in iter(self._waiting.get, None):
            batch = [first]
            for _ in range(min(self._waiting.qsize(), _MAX_BATCH)):
                served = self._waiting.get()
                if served is None:
                    self.end()  # which the next turn meets
                    break
                batch.append(served)
            yield batch


def served_line(served: Served) -> Line:
    """Write a request as a line: when, what came of it, its bytes and how fast they went, what was asked, by whom."""
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
