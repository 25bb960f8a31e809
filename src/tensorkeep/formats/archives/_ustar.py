"""Members of a tar archive (POSIX ustar with pax records) as Python's `tarfile` writes it, and nothing else.

Refuses everything in which two tar readers could find different members: links, directories, sparse files, GNU
extensions, duplicate names, numbers that are not plain octal, padding that is not zero, bytes after the archive.
"""

from __future__ import annotations

import re
import struct

import msgspec

from tensorkeep.errors import ArchiveError
from tensorkeep.transport import ByteRange, ByteSource

_BLOCK_NBYTES = 512
_END_NBYTES = 2 * _BLOCK_NBYTES
_RECORD_NBYTES = 20 * _BLOCK_NBYTES
"""Writers pad an archive with zeros to a multiple of this."""

_MAX_MEMBERS = 16
"""More members than this are refused; torch 0.1, whose archives are read here, wrote four."""

_MAX_PAX_NBYTES = 4096
"""Bytes of pax records for one member; a time and a name take 60."""

_LAYOUT = struct.Struct("100s 8s 8s 8s 12s 12s 8s c 100s 8s 32s 32s 8s 8s 155s 12s")
_CHECKSUM = slice(148, 156)
_MAGIC = b"ustar\x0000"
_OCTAL = re.compile(rb"[0-7]{1,11}[ \0]*")
_PAX_RECORD = re.compile(rb"([0-9]{1,4}) ([a-z]{1,16})=([^\n]*)\n")
_PAX_KEYS = frozenset((b"atime", b"ctime", b"gid", b"gname", b"mtime", b"uid", b"uname", b"size"))
"""Pax records that are allowed; a name or link could redirect to another member."""


class _Header(msgspec.Struct, frozen=True):
    """One header block: the name and type of a member, and the size of its data."""

    name: str
    kind: bytes
    nbytes: int


def read_ustar(source: ByteSource) -> dict[str, ByteRange]:
    """Return the name and byte range of each member."""
    members: dict[str, ByteRange] = {}
    position = 0
    pax_size: int | None = None
    is_described = False
    while (header := _read_header(source, position)) is not None:
        position += _BLOCK_NBYTES
        if header.kind == b"x" and not is_described:
            pax_size = _read_pax_size(source, _claim(source, position, header))
            is_described = True
        elif header.kind in {b"0", b"\0"}:
            header = _sized(header, pax_size)
            _add(members, header.name, _claim(source, position, header))
            pax_size, is_described = None, False
        else:
            raise ArchiveError(
                "a member of the tar archive is not a regular file", expected="type 0", found=repr(header.kind)[1:]
            )
        position = _pass(source, position + header.nbytes)
    if is_described:
        raise ArchiveError("the tar archive ends where a member should follow")
    _check_end(source, position)
    return members


def _read_header(source: ByteSource, position: int) -> _Header | None:
    """Return the header at a position, or None if a block of zeros marks the end."""
    block = _read(source, position, _BLOCK_NBYTES)
    if not any(block):
        return None
    name, _, _, _, size, _, checksum, kind, link, magic, _, _, _, _, prefix, padding = _LAYOUT.unpack(block)
    expected = sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")
    if magic != _MAGIC or _octal(checksum) != expected:
        raise ArchiveError(f"no tar header at byte {position:,}", expected="a ustar header with a valid checksum")
    if any(link) or any(prefix) or any(padding):
        raise ArchiveError("a member of the tar archive is a link or has a long name")
    return _Header(_name(name), kind, _octal(size))


def _octal(field: bytes) -> int:
    if _OCTAL.fullmatch(field) is None:
        raise ArchiveError("a number in a tar header is not octal", found=repr(field)[1:])
    return int(field.rstrip(b" \0"), 8)


def _name(field: bytes) -> str:
    name, _, rest = field.partition(b"\0")
    if any(rest) or not name.isascii():
        raise ArchiveError("the name of a member of the tar archive is not plain ASCII", found=repr(field)[1:])
    return name.decode("ascii")


def _read_pax_size(source: ByteSource, span: ByteRange) -> int | None:
    """Return the size that pax records declare for the next member (used from 8 GiB)."""
    if len(span) > _MAX_PAX_NBYTES:
        raise ArchiveError(
            "pax records are too long", expected=f"at most {_MAX_PAX_NBYTES:,}", found=f"{len(span):,}"
        )
    records = _read(source, span.start, len(span))
    size: int | None = None
    seen: set[bytes] = set()
    position = 0
    while position < len(records):
        match = _PAX_RECORD.match(records, position)
        if match is None or int(match[1]) != match.end() - position or match[2] not in _PAX_KEYS or match[2] in seen:
            raise ArchiveError(
                "pax records are malformed or not allowed", found=repr(records[position : position + 80])[1:]
            )
        seen.add(match[2])
        if match[2] == b"size":
            size = _decimal(match[3])
        position = match.end()
    return size


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ArchiveError("the size in pax records is not a number", found=repr(text)[1:])
    return int(text)


def _sized(header: _Header, pax_size: int | None) -> _Header:
    if pax_size is None:
        return header
    if header.nbytes not in {0, pax_size}:
        raise ArchiveError("a member of the tar archive has two sizes", found=f"{header.nbytes:,} and {pax_size:,}")
    return _Header(header.name, header.kind, pax_size)


def _add(members: dict[str, ByteRange], name: str, span: ByteRange) -> None:
    if name in members or len(members) == _MAX_MEMBERS:
        raise ArchiveError("the tar archive has a duplicate member, or too many members", found=repr(name))
    members[name] = span


def _claim(source: ByteSource, position: int, header: _Header) -> ByteRange:
    """Return the byte range of the data after a header; it must be inside the file."""
    n_left = source.nbytes - position
    if header.nbytes > n_left:
        raise ArchiveError(
            f"the tar archive ends inside member {header.name!r}",
            expected=f"{header.nbytes:,} bytes",
            found=f"{n_left:,}",
        )
    return ByteRange(position, position + header.nbytes)


def _pass(source: ByteSource, position: int) -> int:
    """Check that padding is zero, and return where the next block starts."""
    padding = -position % _BLOCK_NBYTES
    if any(_read(source, position, padding)):
        raise ArchiveError(f"padding at byte {position:,} of the tar archive is not zero")
    return position + padding


def _check_end(source: ByteSource, position: int) -> None:
    filled = position + _END_NBYTES + -(position + _END_NBYTES) % _RECORD_NBYTES
    n_left = source.nbytes - position
    if not position + _END_NBYTES <= source.nbytes <= filled or any(_read(source, position, n_left)):
        raise ArchiveError(
            f"the tar archive does not end after its last member (byte {position:,})",
            expected=f"{_END_NBYTES:,} to {filled - position:,} bytes of zeros",
            found=f"{n_left:,} bytes",
        )


def _read(source: ByteSource, position: int, nbytes: int) -> bytes:
    if position + nbytes > source.nbytes:
        raise ArchiveError(
            "truncated tar archive",
            expected=f"{nbytes:,} bytes at {position:,}",
            found=f"a file of {source.nbytes:,}",
        )
    return bytes(source.read(ByteRange(position, position + nbytes)))
