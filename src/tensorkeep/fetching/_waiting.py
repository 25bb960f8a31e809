"""Processes that fetch the same to the same place: one downloads it, the others wait and take what it brought."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from tensorkeep.errors import BusyError
from tensorkeep.fetching._journal import Progress as Fetched
from tensorkeep.fetching._journal import decode_journal
from tensorkeep.parallel import Progress

_T = TypeVar("_T")

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0

_UNSAID_S: Final = 5.0
"""How long a process that has the lock may not have said what it fetches; a save never says so."""


def patiently(
    attempt: Callable[[], _T], journal: str, origin: str, *, wait_s: float, progress: Progress | None, nbytes: int
) -> _T:
    """Make an attempt again and again while another process fetches the same, and report how far that is."""
    started = last_said = time.monotonic()
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return attempt()
        except BusyError as error:
            now = time.monotonic()
            waited = now - started
            other = _read(journal)
            is_same = other.fetch is not None and other.fetch.origin == origin
            if is_same:
                last_said = now
            is_silent = other.fetch is None and now - last_said < _UNSAID_S
            if waited >= wait_s or not (is_same or is_silent):
                if waited >= _FIRST_PAUSE_S:
                    error.add_note(f"waited {waited:.1f} seconds for it (wait_s={wait_s:g})")
                raise
        if progress is not None and is_same:
            progress(min(sum(len(span) for spans in other.spans.values() for span in spans), nbytes), nbytes)
        time.sleep(min(pause, max(0.0, wait_s - waited)))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _read(journal: str) -> Fetched:
    """Return what another fetch has recorded; nothing if there is no other."""
    try:
        with open(journal, "rb") as file:
            return decode_journal(file.read())
    except OSError:
        return Fetched()
