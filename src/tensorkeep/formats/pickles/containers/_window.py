"""Pickles and raw bytes that follow each other in a file, read in order through a window that is small.

Where a pickle ends is known only when it has been run, and gigabytes of numbers may follow. So a piece of the file is
read, and when its end cuts the pickle off, a piece eight times as long, and the pickle is run again from its start.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.machine import Context, Event, PickleCutError, run_pickle
from tensorkeep.transport import ByteRange, ByteSource

_FIRST_NBYTES = 4096
"""Bytes that are read at once to begin with: the pickles between storages are shorter, and disks read no less."""

_PYTHON_3 = 3
"""A protocol whose names are used as they are."""

_GROWTH = 8
"""How much longer the next window is; at worst, what was run in vain is as long as the pickle itself."""


class Window:
    """A part of a file in which pickles and raw bytes follow each other.

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
        """Bytes of the part that have not been passed yet."""
        return self._stop - self.position

    def run(self) -> Any:
        """Run the pickle that starts here, and pass it."""
        return self._run(self._context)

    def run_plain(self, *, n_names: int = 0) -> Any:
        """Run a pickle that must hold plain data, without a call or a storage in it, and pass it."""
        start = self.position
        apart = Context(dangerous="record", persistent_load=_refuse_id, keeps_events=True)
        value = self._run(apart)
        events = apart.events or []
        for event in events:
            if event.action == "import":  # which the context of the file may refuse, or notes
                self._context.find(event.module, event.name, _PYTHON_3, event.position)
        if len(events) > n_names:
            raise PickleError(
                f"the pickle at byte {start:,} is more than plain data",
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
        """Return the next bytes, and pass them."""
        if nbytes > self._n_held and nbytes <= self.n_left:
            self._read(max(nbytes, _FIRST_NBYTES))
        span = self.skip(nbytes)
        return self._data[span.start - self._start : span.stop - self._start]

    def skip(self, nbytes: int) -> ByteRange:
        """Pass bytes without reading them."""
        if nbytes > self.n_left:
            raise PickleError(
                "the file is cut off", expected=f"{nbytes:,} bytes at {self.position:,}", found=f"{self.n_left:,}"
            )
        start, self.position = self.position, self.position + nbytes
        return ByteRange(start, self.position)

    @property
    def _n_held(self) -> int:
        """Bytes from the position on that are in memory."""
        return self._start + len(self._data) - self.position

    def _grow(self, n_needed: int) -> None:
        if max(self._n_held, n_needed) >= self._max_nbytes:
            raise LimitError(
                "a pickle is too long", expected=f"at most {self._max_nbytes:,} bytes", found="no end of it"
            )
        self._read(min(max(_FIRST_NBYTES, n_needed, self._n_held * _GROWTH), self._max_nbytes))

    def _read(self, nbytes: int) -> None:
        """Hold the bytes from the position on, and no others."""
        self._data, self._start = b"", self.position  # what was held is freed before more is read
        held = BytesIO()
        for piece in self._source.pieces(ByteRange(self.position, min(self.position + nbytes, self._stop))):
            held.write(piece)
        self._data = held.getvalue()


def _refuse_id(pid: Any) -> Any:
    raise PickleError("a tensor or storage is named where plain data belongs", found=type(pid).__name__)


def _moved(events: list[Event], nbytes: int) -> list[Event]:
    """Count the positions of events from the start of the source."""
    return [msgspec.structs.replace(event, position=event.position + nbytes) for event in events]
