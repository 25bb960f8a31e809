"""A note on a file, which goes where the file goes and is no file itself (xattr(7)).

It says something of the bytes that the file had when it was written, so it has the time of their last change, and is
believed as long as that stays. Where the file system takes no notes, there are none.
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
    """Note something on a file, if the file system takes notes."""
    if not _HAS_NOTES:
        return
    with suppress(OSError):
        status = os.stat(path)
        note = msgspec.json.encode(_Note(text, status.st_size, status.st_mtime_ns))
        os.setxattr(path, _NAME, note)


def get_xattr_note(path: str) -> str | None:
    """Return what was noted on a file; None where nothing was, or the file has changed since."""
    if not _HAS_NOTES:
        return None
    try:
        note = msgspec.json.decode(os.getxattr(path, _NAME), type=_Note)
        status = os.stat(path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return note.text if (note.nbytes, note.mtime_ns) == (status.st_size, status.st_mtime_ns) else None
