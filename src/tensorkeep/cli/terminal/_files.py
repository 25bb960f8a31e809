"""The files at a destination, before and after a command."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tensorkeep.texts import counted, printable
from tensorkeep.transport import is_remote


class Before:
    """The files of a directory, or those beside a file, before something is written."""

    def __init__(self, path: str) -> None:
        self._directory = path if os.path.isdir(path) else os.path.dirname(path) or os.curdir
        self._files = None if is_remote(path) else _files_in(self._directory)

    @property
    def is_known(self) -> bool:
        """Whether they could be listed."""
        return self._files is not None

    @property
    def is_unchanged(self) -> bool:
        """Whether all is as it was."""
        return self._files is not None and _files_in(self._directory) == self._files

    def replaced(self) -> tuple[str, ...]:
        """Name the files that are gone, or have made room for others of their names."""
        after = _files_in(self._directory) or {}
        gone = (name for name, file in (self._files or {}).items() if name not in after or after[name][0] != file[0])
        return tuple(sorted(name for name in gone if not name.startswith(".")))


def replaced_text(names: Sequence[str]) -> str:
    """Return the end of a sentence about what was written."""
    if not names:
        return ""
    return f"; replaced {printable(names[0]) if len(names) == 1 else counted(len(names), 'file')}"


def _files_in(directory: str) -> dict[str, tuple[int, int, int]] | None:
    try:
        return {entry.name: _identity(entry) for entry in os.scandir(directory)}
    except OSError:
        return None


def _identity(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    """Return the number of a file, which another in its place does not have, its size and its time."""
    try:
        status = os.stat(entry.path)  # of what a link leads to: links stay when it is replaced
    except OSError:
        status = os.stat(entry.path, follow_symlinks=False)
    return status.st_ino, status.st_size, status.st_mtime_ns
