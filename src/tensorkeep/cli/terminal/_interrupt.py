"""Ctrl-C while something is written: what became of the destination."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tensorkeep.cli.terminal._render import show_error
from tensorkeep.markup import printable
from tensorkeep.transport import is_remote, without_secrets

_File = tuple[str, int, int, int]


@contextmanager
def reporting_interrupt(destination: str, *, advice: str = "") -> Iterator[None]:
    """Say after Ctrl-C whether the destination is as it was."""
    before = _files_at(destination)
    try:
        yield
    except KeyboardInterrupt:
        is_same = before is not None and _files_at(destination) == before
        what = "nothing was written to" if is_same else "look at what is in"
        show_error(f"interrupted: {what} {printable(without_secrets(destination))}{advice}")
        raise


def _files_at(path: str) -> list[_File] | None:
    """Return the files of a directory, or beside a file, with what changes when one is written; None if unknown."""
    if is_remote(path):
        return None
    directory = path if os.path.isdir(path) else os.path.dirname(path) or os.curdir
    try:
        return sorted(_file(os.path.join(directory, name)) for name in os.listdir(directory))
    except OSError:
        return None


def _file(path: str) -> _File:
    status = os.stat(path, follow_symlinks=False)
    return path, status.st_ino, status.st_size, status.st_mtime_ns
