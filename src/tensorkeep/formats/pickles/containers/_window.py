"""Pickles and raw bytes that follow each other in a file, read in order through a small window.

Only running a pickle shows where it ends, and gigabytes of numbers may follow. So a small part of the file is read;
if the pickle extends beyond it, a part eight times as long, and the pickle is run again from its start.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.machine import Context, Event, PickleCutError, run_pickle
from tensorkeep.transport import ByteRange, ByteSource

_FIRST_NBYTES = 4096
"""Bytes of the first read: pickles between storages are shorter, and disks read no less."""

_PYTHON_3 = 3
"""A protocol without names of Python 2, which would be translated."""

_GROWTH = 8
"""Factor to the next window. At worst, the windows run in vain are together about as long as the pickle."""


class Window:
    """Reads pickles and raw bytes that follow each other in a part of a file.

    Attributes:
        position: The next byte of the source.
    """

    def __init__(self, source: ByteSource, span: ByteRange, context: Context) -> None:
        self.position = span.start
        self._source = source
        self._stop = span.stop
        self._context = context
        self._max_nbytes = context.limits.max_nbytes
        self._data = b""
        self._start = span.start

    @property
    def n_left(self) -> int:
        """Bytes of the part after the position."""
        return self._stop - self.position

    def run(self) -> Any:
        """Run the next pickle."""
        return self._run(self._context)

    def run_plain(self, *, n_names: int = 0) -> Any:
        """Run the next pickle, which must be plain data without calls or storages."""
        start = self.position
        apart = Context(dangerous="record", persistent_load=_refuse_id, keeps_events=True)
        value = self._run(apart)
        events = apart.events or []
        for event in events:
            if event.action == "import":  # the context of the file may refuse or record it
                self._context.find(event.module, event.name, _PYTHON_3, event.position)
        if len(events) > n_names:
            raise PickleError(
                f"the pickle at byte {start:,} is not plain data",
                expected="numbers and texts",
                found=f"{events[n_names].module}.{events[n_names].name}",
                hint="Nothing was run",
            )
        return value

    def _run(self, context: Context) -> Any:
        if self._n_held <= 0:
            self._read(_FIRST_NBYTES)
        mark = context.mark()
        while True:
            try:
                value, stop = run_pickle(self._data, self.position - self._start, context)
            except PickleCutError as error:
                n_needed = self._start + error.n_needed - self.position
                if max(self._n_held, n_needed - 1) >= self.n_left:
                    raise
                context.rewind(mark)
                self._grow(n_needed)
            else:
                if context.events is not None:
                    context.events[mark[2] :] = _moved(context.events[mark[2] :], self._start)
                self.position = self._start + stop
                return value

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        if nbytes > self._n_held and nbytes <= self.n_left:
            self._read(max(nbytes, _FIRST_NBYTES))
        span = self.skip(nbytes)
        return self._data[span.start - self._start : span.stop - self._start]

    def skip(self, nbytes: int) -> ByteRange:
        """Skip bytes, and return their range."""
        if nbytes > self.n_left:
            raise PickleError(
                "truncated file", expected=f"{nbytes:,} bytes at {self.position:,}", found=f"{self.n_left:,}"
            )
        start, self.position = self.position, self.position + nbytes
        return ByteRange(start, self.position)

    @property
    def _n_held(self) -> int:
        """Bytes after the position that are in memory."""
        return self._start + len(self._data) - self.position

    def _grow(self, n_needed: int) -> None:
        if max(self._n_held, n_needed) >= self._max_nbytes:
            raise LimitError("a pickle is too long", expected=f"at most {self._max_nbytes:,} bytes", found="more")
        self._read(min(max(_FIRST_NBYTES, n_needed, self._n_held * _GROWTH), self._max_nbytes))

    def _read(self, nbytes: int) -> None:
        """Keep the bytes after the position in memory, and no others."""
        self._data, self._start = b"", self.position  # free the old bytes before more are read
        held = BytesIO()
        for piece in self._source.pieces(ByteRange(self.position, min(self.position + nbytes, self._stop))):
            held.write(piece)
        self._data = held.getvalue()


def _refuse_id(pid: Any) -> Any:
    raise PickleError("a tensor or storage where plain data is expected", found=type(pid).__name__)


def _moved(events: list[Event], nbytes: int) -> list[Event]:
    """Make positions of events count from the start of the source."""
    return [msgspec.structs.replace(event, position=event.position + nbytes) for event in events]
