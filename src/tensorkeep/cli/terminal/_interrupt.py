"""Ctrl-C while something is written: what became of the destination."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
