"""Ctrl-C: what became of the destination while it is written, or the end of a command that runs until then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tensorkeep.cli.terminal._files import Before
from tensorkeep.cli.terminal._render import show_error
from tensorkeep.texts import printable
from tensorkeep.transport import without_secrets


@contextmanager
def reporting_interrupt(destination: str, *, advice: str = "") -> Iterator[None]:
    """Say after Ctrl-C whether the destination is as it was."""
    before = Before(destination)
    try:
        yield
    except KeyboardInterrupt:
        what = "nothing was written to" if before.is_unchanged else "look at what is in"
        show_error(f"interrupted: {what} {printable(without_secrets(destination))}{advice}")
        raise


def call_on_signal(end: Callable[[], object]) -> None:
    """Let Ctrl-C, or SIGTERM, call this instead of raising; a second one stops at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, partial(_first_signal, end))


def _first_signal(end: Callable[[], object], number: int, _frame: object) -> None:
    signal.signal(number, signal.default_int_handler)
    end()
