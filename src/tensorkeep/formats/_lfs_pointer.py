"""Pointers of Git LFS: small texts in place of files that were not fetched (git-lfs, docs/spec.md). Pure.

version https://git-lfs.github.com/spec/v1
oid sha256:<64 hexadecimal digits>
size <bytes>
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_POINTER_NBYTES: Final = 1024
"""Most bytes of a pointer, by its specification."""

_match = re.compile(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v1\n(?:ext-[^\n]+\n)*"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\n(?:ext-[^\n]+\n)*size (?P<size>[0-9]{1,18})\n?"
).fullmatch


class LfsPointer(msgspec.Struct, frozen=True):
    """What a pointer says of its file.

    Attributes:
        sha256: Its SHA-256, as 64 hexadecimal digits.
        nbytes: Its size.
    """

    sha256: str
    nbytes: int


def parse_lfs_pointer(content: bytes) -> LfsPointer | None:
    """Parse a pointer; None if the content is something else."""
    found = _match(content) if len(content) <= MAX_POINTER_NBYTES else None
    return None if found is None else LfsPointer(found["oid"].decode(), int(found["size"]))
