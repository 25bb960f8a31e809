"""Another name for an existing file: two sets share its bytes, and either can be removed without harm."""

from __future__ import annotations

import os

from tensorkeep.transport.atomic._staging import STAGING_SUFFIX
from tensorkeep.transport.sources import LocalFile
from tensorkeep.transport.system import read_at


def add_name(source: LocalFile, path: str) -> bool:
    """Give an open file another name, and return whether that was possible."""
    try:
        os.link(os.path.realpath(source.name), path)
    except OSError:
        return False
    if os.path.samestat(os.lstat(path), os.fstat(source.descriptor().number)):
        return True
    os.unlink(path)
    return False


def has_original_size(source: LocalFile) -> bool:
    """Say whether an open file still has the size that it had when it was opened."""
    return os.fstat(source.descriptor().number).st_size == source.nbytes


def is_being_changed(source: LocalFile, *, but: str) -> bool:
    """Say whether another save in the file's directory may edit it in place, unaware that it has several names."""
    around = os.path.dirname(os.path.realpath(source.name))
    names = [name for name in os.listdir(around) if name.endswith(STAGING_SUFFIX)]
    return any(os.path.join(around, name) != but for name in names)


def begins_with(path: str, head: bytes) -> bool:
    """Say whether a file begins with these bytes; a link never does."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = bytearray(len(head))
        return read_at(fd, 0, memoryview(found)) == len(head) and found == head
    finally:
        os.close(fd)
