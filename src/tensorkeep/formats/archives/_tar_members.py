"""The members of any tar archive (v7, ustar, pax, GNU), as Python's `tarfile` finds them.

Anything that ends the walk before the archive does, or that readers treat differently, is reported as a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.errors import LimitError
from tensorkeep.transport import ByteRange, ByteSource

_BLOCK_NBYTES: Final = 512
_MAX_MEMBERS: Final = 100_000
_MAX_DESCRIPTION_NBYTES: Final = 2**20
"""Most bytes of a long name or of pax records."""

_NAME: Final = slice(0, 100)
_SIZE: Final = slice(124, 136)
_CHECKSUM: Final = slice(148, 156)
_KIND: Final = slice(156, 157)
_USTAR: Final = slice(257, 263)
_PREFIX: Final = slice(345, 500)

_LINKS: Final = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
_NO_FILES: Final = _LINKS.keys() | {b"5"}
"""Links, devices, directories and pipes; members of every other kind, known or not, are files."""

_PAX_KINDS: Final = frozenset((b"x", b"X"))
_LONG_NAME: Final = b"L"
_LONG_LINK: Final = b"K"
_GLOBAL: Final = b"g"
_SPARSE: Final = b"S"
_DESCRIPTIONS: Final = _PAX_KINDS | {_LONG_NAME, _LONG_LINK, _GLOBAL}
_ASCII: Final = bytes(range(128))
_GLOBAL_KEYS: Final = (b"path", b"size", b"GNU.sparse.")
"""Keys that global records must not have, since readers differ on their effect."""

_match_pax_record = re.compile(rb"([0-9]{1,7}) ([^=]+)=").match


class TarListing(msgspec.Struct, frozen=True):
    """The result of a walk through a tar archive.

    Attributes:
        members: Name and byte range of each file; truncated where the archive is.
        links: Name of each link, device and pipe, and which of these it is.
        stop: Where the walk ended: at the block of zeros, at the end, or at bytes that are not a header.
        problems: Position and description of whatever cannot be read, or is treated differently by readers.
    """

    members: tuple[tuple[str, ByteRange], ...]
    links: tuple[tuple[str, str], ...]
    stop: int
    problems: tuple[tuple[int, str], ...]


def is_tar_header(block: bytes) -> bool:
    """Say whether a block is the header of a member, by its checksum: the oldest form has no signature."""
    block = block[:_BLOCK_NBYTES]
    checksum = _number(block[_CHECKSUM])
    if len(block) < _BLOCK_NBYTES or checksum is None or not any(block):
        return False
    rest = block[: _CHECKSUM.start] + b" " * 8 + block[_CHECKSUM.stop :]
    unsigned = sum(rest)
    return checksum in {unsigned, unsigned - 256 * len(rest.translate(None, _ASCII))}


def list_tar(source: ByteSource, span: ByteRange) -> TarListing:
    """List the files in a tar archive."""
    return _Walk(source, span).listing()


class _Walk:
    def __init__(self, source: ByteSource, span: ByteRange) -> None:
        self._source = source
        self._span = span
        self._position = span.start
        self._described: dict[bytes, bytes] = {}
        self._members: list[tuple[str, ByteRange]] = []
        self._links: list[tuple[str, str]] = []
        self._problems: dict[tuple[int, str], None] = {}

    def listing(self) -> TarListing:
        for _ in range(_MAX_MEMBERS):
            if not self._step():
                return TarListing(tuple(self._members), tuple(self._links), self._position, tuple(self._problems))
        raise LimitError("the tar archive has too many members", expected=f"at most {_MAX_MEMBERS:,}")

    def _problem(self, message: str) -> None:
        self._problems[self._position, message] = None

    def _step(self) -> bool:
        """Read one header and its data; return whether another may follow."""
        block = self._read(_BLOCK_NBYTES)
        if not any(block):
            return False
        if not is_tar_header(block):
            self._problem("the tar archive ends with something that is not a header")
            return False
        size = self._size(block)
        if size is None or size < 0:
            self._problem("the size of a member of the tar archive is not a number, or is negative")
            return False
        kind = block[_KIND]
        name = self._described.get(b"path", _name(block)).decode("utf-8", "backslashreplace")
        has_content = not (kind in _NO_FILES or (kind == b"\0" and _text(block[_NAME]).endswith(b"/")))
        if size and not has_content:
            self._problem("a directory or link of the tar archive has a size, so readers differ on what follows")
        start = self._position + _BLOCK_NBYTES
        content = ByteRange(start, max(start, min(start + size, self._span.stop)))
        if has_content and len(content) < size:
            self._problem("the tar archive ends inside a member")
        if kind in _DESCRIPTIONS:
            self._describe(kind, ByteRange(start, min(_padded(content.stop, start), self._span.stop)))
        else:
            if has_content:
                self._members.append((name, content))
            elif kind in _LINKS:
                self._links.append((name, _LINKS[kind]))
            if has_content and (kind == _SPARSE or any(key.startswith(b"GNU.sparse.") for key in self._described)):
                self._problem("a sparse member of the tar archive cannot be scanned")
            self._described = {}
        self._position = min(_padded(start + size, start) if has_content else start, self._span.stop)
        return True

    def _read(self, nbytes: int) -> bytes:
        return bytes(self._source.read(ByteRange(self._position, min(self._position + nbytes, self._span.stop))))

    def _size(self, block: bytes) -> int | None:
        """Return the size of a member: from pax records, octal text, or GNU's binary form; None if invalid."""
        described = self._described.get(b"size")
        if described is not None and block[_KIND] not in _DESCRIPTIONS:
            return int(described) if described.isdigit() and len(described) < 20 else None
        return _number(block[_SIZE])

    def _describe(self, kind: bytes, content: ByteRange) -> None:
        """Read what describes the next member: pax records or a long name by GNU tar, with their padding."""
        if len(content) > _MAX_DESCRIPTION_NBYTES:
            self._problem("the description of a member of the tar archive is too long")
            return
        data = bytes(self._source.read(content))
        if kind == _LONG_LINK:
            return
        is_pax = kind != _LONG_NAME
        records = _pax_records(data, self._problem) if is_pax else {b"path": _text(data)}
        if kind == _GLOBAL:
            if any(key.startswith(_GLOBAL_KEYS) for key in records):
                self._problem("the tar archive has global pax records, which readers treat differently")
            return
        if any(self._described.get(key, value) != value for key, value in records.items()):
            self._problem("a member of the tar archive has two descriptions")
        self._described |= records


def _number(field: bytes) -> int | None:
    """Return a number of a header as Python reads it, or None: octal text, or GNU's binary form."""
    if field[:1] in {b"\x80", b"\xff"}:
        return int.from_bytes(field[1:], "big", signed=field[:1] == b"\xff")
    try:
        return int(_text(field).decode("ascii").strip() or "0", 8)
    except ValueError:
        return None


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _padded(stop: int, start: int) -> int:
    """Return the end of the block that data ends in."""
    return stop + (start - stop) % _BLOCK_NBYTES


def _name(block: bytes) -> bytes:
    name, prefix = _text(block[_NAME]), _text(block[_PREFIX])
    return prefix + b"/" + name if prefix and block[_USTAR] == b"ustar\0" else name


def _pax_records(data: bytes, problem: Callable[[str], None]) -> dict[bytes, bytes]:
    """Return pax records; each starts with its length."""
    records: dict[bytes, bytes] = {}
    position = 0
    while position < len(data) and data[position]:
        match = _match_pax_record(data, position)
        stop = position + int(match[1]) if match else 0
        if match is None or not match.end() < stop <= len(data) or data[stop - 1 : stop] != b"\n":
            problem("invalid pax records in the tar archive")
            break
        if records.get(match[2], data[match.end() : stop - 1]) != data[match.end() : stop - 1]:
            problem("a member of the tar archive has two descriptions")
        records[match[2]] = data[match.end() : stop - 1]
        position = stop
    return records
