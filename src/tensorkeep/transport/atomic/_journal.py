"""The journal of a transaction: which files change, so that any process can replay it or read past it. Pure.

It is JSON with a checksum, and appears whole, by a rename. So a journal that does not parse is damaged, and must not
be replayed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.paths import is_local_name

_VERSION: Final = 1


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="tensorkeep-commit"):
    """The changes of a commit, in this order.

    Attributes:
        place: Inode of its staging directory, which differs in a copy.
        first: Names of old files to remove before anything else; new files may have the same names.
        patched: Names of files that get a new header in place.
        renamed: Names of new files to move in, in order.
        removed: Names to remove at the end, none of them new.
        version: Of this structure.
        checksum: CRC-32 of the text with zero in this field.
    """

    place: int
    first: tuple[str, ...]
    patched: tuple[str, ...]
    renamed: tuple[str, ...]
    removed: tuple[str, ...]
    version: int = _VERSION
    checksum: int = 0


class _Versioned(msgspec.Struct):
    version: int


def encode_journal(journal: Journal) -> bytes:
    """Return the text of a journal."""
    return msgspec.json.encode(msgspec.structs.replace(journal, checksum=_checksum(journal)))


def _checksum(journal: Journal) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(journal, checksum=0)))


def decode_journal(text: bytes, path: str) -> Journal:
    """Read a journal."""
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version <= _VERSION:
            journal = msgspec.json.decode(text, type=Journal)
            _check(journal)
            return journal
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise IntegrityError(
            "the journal of an unfinished save is damaged, so its old and new files cannot be distinguished",
            path=path,
            found=str(error),
            hint="Restore the directory from a copy",
        ) from error
    raise UnsupportedError(
        "a later version of tensorkeep left a save unfinished here",
        path=path,
        expected=f"version {_VERSION}",
        found=str(version),
        hint="Open the directory with that version once",
    )


def _check(journal: Journal) -> None:
    if journal.checksum != _checksum(journal):
        raise ValueError("a wrong checksum")
    for name in (*journal.first, *journal.patched, *journal.renamed, *journal.removed):
        if not is_local_name(name):
            raise ValueError(f"{name!r}, which is not a plain file name")


def check_name(name: str, path: str, *, taken: Iterable[str] = ()) -> None:
    """Refuse a name that is not a plain file name, or is reserved."""
    if not is_local_name(name) or name in taken:
        raise UnsupportedError("not a plain file name", path=path, found=repr(name))
