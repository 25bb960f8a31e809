"""Files that are at the destination already, so that nobody need send them again."""

from __future__ import annotations

import os
import stat

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import TensorkeepError
from tensorkeep.fetching._check import findings_in
from tensorkeep.fetching._plan import Promise, Wanted
from tensorkeep.fetching._stamp import VersionId
from tensorkeep.transport import get_xattr_note, set_xattr_note


def is_unchanged(path: str, wanted: Wanted, stamp: VersionId, head: Buffer) -> bool:
    """Say whether a file is the one that is wanted.

    That is so if it was fetched from there in the version that is there now, and has not changed since; or if it has
    the digests that are promised, for which all of it is read.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_size != stamp.nbytes:
        return False
    if stamp.is_unique and get_xattr_note(path) == _origin(wanted, stamp) and begins_with(path, head):
        return True
    return _is_told_by_digests(wanted.promise) and _has_digests(path, wanted)


def begins_with(path: str, head: Buffer) -> bool:
    """Say whether a file can be read and has these first bytes: servers may give two versions one stamp."""
    try:
        with open(path, "rb") as file:
            return file.read(len(memoryview(head))) == head
    except OSError:
        return False


def note_origin(path: str, wanted: Wanted, stamp: VersionId) -> None:
    """Note on a file where it is from, for the next fetch."""
    if stamp.is_unique:
        set_xattr_note(path, _origin(wanted, stamp))


def _origin(wanted: Wanted, stamp: VersionId) -> str:
    return f"fetched {wanted.path} {wanted.path.fingerprint} {msgspec.json.encode(stamp).decode()}"


def _is_told_by_digests(promise: Promise) -> bool:
    return (promise.header, promise.blake3, promise.sha256) != (None, None, None)


def _has_digests(path: str, wanted: Wanted) -> bool:
    try:
        return not findings_in(path, wanted)
    except TensorkeepError:
        return False
