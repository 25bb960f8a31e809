"""Notes in extended attributes of a file (xattr(7)), which move with the file.

A note is about the bytes of the file, so it holds their modification time, and is ignored once that has changed. On a
file system without extended attributes there are no notes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import msgspec

_NAME: Final = "user.tensorkeep"
_HAS_NOTES: Final = hasattr(os, "setxattr")


class _Note(msgspec.Struct, frozen=True):
    text: str
    nbytes: int
    mtime_ns: int


def set_xattr_note(path: str, text: str) -> None:
    """Set a note on a file, if the file system supports it."""
    if not _HAS_NOTES:
        return
    with suppress(OSError):
        status = os.stat(path)
        note = msgspec.json.encode(_Note(text, status.st_size, status.st_mtime_ns))
        os.setxattr(path, _NAME, note)


def get_xattr_note(path: str) -> str | None:
    """Return the note on a file; None if there is none, or the file has changed since."""
    if not _HAS_NOTES:
        return None
    try:
        note = msgspec.json.decode(os.getxattr(path, _NAME), type=_Note)
        status = os.stat(path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return note.text if (note.nbytes, note.mtime_ns) == (status.st_size, status.st_mtime_ns) else None
