"""What exists under the name of a new file, and the mode that the new file takes over."""

from __future__ import annotations

import os
import stat

from tensorkeep.errors import TransportError, UnsupportedError


def create_staged(path: str, *, private: bool) -> int:
    """Create a staged file; one that will replace another is private until it has that file's mode."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.open(path, flags, 0o600 if private else 0o666)


def status_of_replaced(place: str) -> os.stat_result | None:
    """Return the status of the file whose mode a new one takes over; None if there is none, or only a link."""
    return os.lstat(place) if is_file_or_link(place) and not os.path.islink(place) else None


def is_file_or_link(place: str) -> bool:
    """Say whether a file or link exists; refuse anything else, which is never replaced or removed."""
    try:
        mode = os.lstat(place).st_mode
    except FileNotFoundError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise TransportError("only files are replaced and removed", path=place, found=kind)
    return True


def first_bytes(place: str, nbytes: int) -> bytes:
    """Return the first bytes of a file, or refuse one that must not be edited in place."""
    status = os.lstat(place)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise UnsupportedError(
            "only a file with a single name is edited in place",
            path=place,
            found="a file with several names" if stat.S_ISREG(status.st_mode) else "a link, or not a file",
            hint="Save it again instead",
        )
    with open(place, "rb") as file:
        head = file.read(nbytes)
    if len(head) < nbytes:
        raise TransportError("the file is shorter than its new header", path=place)
    return head
