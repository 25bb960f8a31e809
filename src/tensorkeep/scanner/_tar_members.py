"""The members of any tar archive (ustar, pax, GNU), as far as they can be told: a scan reads what others may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tensorkeep.transport import ByteRange, ByteSource

__all__ = ["tar_members"]

_BLOCK_NBYTES: Final = 512
_MAX_MEMBERS: Final = 100_000
_MAX_DESCRIPTION_NBYTES: Final = 2**20
"""Bytes of a long name or of pax records that are looked at."""

_NAME: Final = slice(0, 100)
_SIZE: Final = slice(124, 136)
_KIND: Final = slice(156, 157)
_PREFIX: Final = slice(345, 500)
_FILES: Final = frozenset((b"0", b"\0", b"7", b"S"))
_PAX: Final = re.compile(rb"\d+ (path|size|GNU\.sparse\.name)=([^\n]*)\n")


def tar_members(source: ByteSource, span: ByteRange) -> Iterator[tuple[str, ByteRange]]:
    """Give name and bytes of each file in a tar archive, until something is no header.

    Args:
        source: Where it is.
        span: Its bytes, half-open, in the source.

    Yields:
        Name and bytes, half-open, in the source, cut off where the archive is.

    Raises:
        TransportError: If the bytes cannot be read.
    """
    position = span.start
    described: dict[bytes, bytes] = {}
    for _ in range(_MAX_MEMBERS):
        if position + _BLOCK_NBYTES > span.stop:
            return
        block = bytes(source.read(ByteRange(position, position + _BLOCK_NBYTES)))
        size = _size(block, described.get(b"size"))
        if not any(block) or size is None:
            return
        position += _BLOCK_NBYTES
        content = ByteRange(position, min(position + size, span.stop))
        kind = block[_KIND]
        if kind in {b"x", b"L"}:
            described |= _description(bytes(source.read(_beginning(content))), kind)
        else:
            if kind in _FILES:
                yield described.get(b"path", _name(block)).decode("utf-8", "backslashreplace"), content
            described = {}
        position += size + -size % _BLOCK_NBYTES


def _beginning(span: ByteRange) -> ByteRange:
    return ByteRange(span.start, min(span.stop, span.start + _MAX_DESCRIPTION_NBYTES))


def _name(block: bytes) -> bytes:
    name, prefix = (block[part].partition(b"\0")[0] for part in (_NAME, _PREFIX))
    return prefix + b"/" + name if prefix and block[257:262] == b"ustar" and block[262:263] == b"\0" else name


def _size(block: bytes, described: bytes | None) -> int | None:
    """Return a member's size: of its pax records, or octal text, or GNU's binary form; None where it is none."""
    field = block[_SIZE]
    if described is not None:
        return int(described) if described.isdigit() and len(described) < 20 else None
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None


def _description(data: bytes, kind: bytes) -> dict[bytes, bytes]:
    """Return what precedes a member to describe it: pax records, or a long name of GNU's."""
    if kind == b"L":
        return {b"path": data.rstrip(b"\0")}
    return {b"path" if key.startswith(b"GNU") else key: value for key, value in _PAX.findall(data)}
