"""Directories that are removed safely: the name disappears at once, and only then the files.

    parent/checkpoint-500/                                            the directory
    parent/.checkpoint-500.tensorkeep-removed-<16 hex digits>/        being deleted; nothing reads it

If the process dies while it deletes, the next removal or save in the same parent directory finishes the work.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from typing import Final

from tensorkeep.transport.system import freed_in_background

_MARK: Final = ".tensorkeep-removed"
_is_moved_aside = re.compile(rf"\..+{re.escape(_MARK)}(-[0-9a-f]{{16}})?").fullmatch  # older versions gave no digits


def move_aside(path: str) -> str:
    """Rename a directory so that nothing finds it any more, and return the new path, to be deleted."""
    parent, name = os.path.split(path)
    aside = os.path.join(parent, f".{name}{_MARK}-{secrets.token_hex(8)}")
    os.rename(path, aside)
    return aside


def delete_directory(path: str) -> None:
    """Delete a directory with all its files; of a symbolic link, only the link."""
    if os.path.islink(path):
        os.unlink(path)
        return
    while os.path.isdir(path):
        with suppress(FileNotFoundError), freed_in_background(_files_in(path)):  # another process deletes it too
            shutil.rmtree(path)


def _files_in(path: str) -> list[str]:
    with os.scandir(path) as found:
        return [entry.path for entry in found if entry.is_file(follow_symlinks=False)]


def delete_moved_aside(parent: str) -> dict[str, OSError]:
    """Delete what was moved aside in a directory, and return what could not be deleted, with the reasons."""
    failed: dict[str, OSError] = {}
    for name in os.listdir(parent):
        if _is_moved_aside(name):
            path = os.path.join(parent, name)
            try:
                delete_directory(path)
            except OSError as error:
                failed[path] = error
    return failed
