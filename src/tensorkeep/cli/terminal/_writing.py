"""Writing to a destination: what is there already is replaced only if the user says so, and then the result says it.

The library decides what may be replaced without a question: a source that is rewritten in its own place, and an older
version of what is fetched. For anything else it raises `DestinationExistsError`, in most cases before it has read
more than headers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from tensorkeep.cli.terminal._files import Before
from tensorkeep.cli.terminal._interrupt import reporting_interrupt
from tensorkeep.cli.terminal._render import ask, progress_bar
from tensorkeep.errors import DestinationExistsError

_Result = TypeVar("_Result")


class Writing:
    """A destination that a command writes to.

    Attributes:
        seconds: How long the writing took, without the question.
        replaced: The files that were replaced or removed.
    """

    def __init__(self, destination: str, *, force: bool, asks: bool = True, advice: str = "") -> None:
        self._destination = destination
        self._force = force
        self._asks = asks
        self._advice = advice
        self.seconds = 0.0
        self.replaced: tuple[str, ...] = ()

    def run(self, write: Callable[[bool], _Result]) -> _Result:
        """Call a function with whether it may replace what is there; ask, and call it again, if it must."""
        before = Before(self._destination)
        with reporting_interrupt(self._destination, advice=self._advice):
            try:
                result = self._timed(write, overwrite=self._force and before.is_known)
            except DestinationExistsError as error:
                if not self._force:
                    self._require_consent(error)
                self.replaced = (error.found or str(error.path),)
                result = self._timed(write, overwrite=True)
        if before.is_known:
            self.replaced = before.replaced()
        return result

    def run_shown(self, doing: str, write: Callable[..., _Result]) -> _Result:
        """Call a function of the library that takes `overwrite` and `progress`, behind a progress bar."""

        def attempt(overwrite: bool) -> _Result:
            with progress_bar(doing) as progress:
                return write(overwrite=overwrite, progress=progress)

        return self.run(attempt)

    def _timed(self, write: Callable[[bool], _Result], *, overwrite: bool) -> _Result:
        start = perf_counter()
        try:
            return write(overwrite)
        finally:
            self.seconds = perf_counter() - start

    def _require_consent(self, error: DestinationExistsError) -> None:
        if not self._asks or not _is_dialogue():
            raise error
        if not ask(f"{error.with_fields(hint=None)}. Replace it?"):
            raise error.with_fields(hint="Nothing was written") from None


def _is_dialogue() -> bool:
    """Say whether somebody can read a question and answer it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
