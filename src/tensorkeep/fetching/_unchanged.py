"""Files that are already at the destination and need not be downloaded again."""

from __future__ import annotations

import os
import stat

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import TensorkeepError
from tensorkeep.fetching._check import findings_in
from tensorkeep.fetching._plan import Promise, Wanted
from tensorkeep.fetching._version_id import VersionId
from tensorkeep.transport import RemotePath, get_xattr_note, set_xattr_note


def is_unchanged(path: str, wanted: Wanted, stamp: VersionId, head: Buffer) -> bool:
    """Say whether a local file is the wanted one: fetched in this version and unchanged since, or equal by digest.

    What was signed is always compared by digest: an earlier fetch may have asked for no signature.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_size != stamp.nbytes:
        return False
    if not wanted.promise.is_signed and _was_fetched(path, wanted, stamp) and begins_with(path, head):
        return True
    return _has_digest(wanted.promise) and _has_digests(path, wanted)


def _was_fetched(path: str, wanted: Wanted, stamp: VersionId) -> bool:
    return stamp.is_unique and get_xattr_note(path) == _origin(wanted, stamp)


def begins_with(path: str, head: Buffer) -> bool:
    """Say whether a file begins with these bytes: servers may give two versions one id."""
    try:
        with open(path, "rb") as file:
            return file.read(len(memoryview(head))) == head
    except OSError:
        return False


def note_origin(path: str, wanted: Wanted, stamp: VersionId) -> None:
    """Note the origin of a file in its extended attributes, for the next fetch."""
    if stamp.is_unique:
        set_xattr_note(path, _origin(wanted, stamp))


def came_from(path: str, origin: RemotePath) -> bool:
    """Say whether a file was fetched from a URL in any version, and not written by anyone since."""
    note = get_xattr_note(path)
    return note is not None and note.startswith(f"fetched {origin} {origin.fingerprint} ")


def _origin(wanted: Wanted, stamp: VersionId) -> str:
    return f"fetched {wanted.path} {wanted.path.fingerprint} {msgspec.json.encode(stamp).decode()}"


def _has_digest(promise: Promise) -> bool:
    return any(each is not None for each in (promise.header, promise.blake3, promise.sha256, promise.root))


def _has_digests(path: str, wanted: Wanted) -> bool:
    try:
        return not findings_in(path, wanted)
    except TensorkeepError:
        return False
