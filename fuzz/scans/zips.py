"""Zip archives, field by field: zip64, two directories, contradicting end records, prefixes, comments."""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple
from zipfile import LZMACompressor

from fuzz.scans.chance import Chance

__all__ = ["Member", "write_zip"]

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_EMPTY_BLOCK = b"\0\0\0\xff\xff"


class Member(NamedTuple):
    """A member to be written.

    Attributes:
        name: Its name.
        data: Its contents.
        is_stored: Whether it is never compressed, as torch wants it.
    """

    name: str
    data: bytes
    is_stored: bool = False


class _Directory(NamedTuple):
    """A directory in the file: where it begins, its bytes, its number of records."""

    start: int
    nbytes: int
    count: int


def write_zip(chance: Chance, members: Sequence[Member]) -> bytes:
    """Return an archive, honest half of the time."""
    is_odd = chance.often(0.6)
    out = bytearray()
    if is_odd and chance.often(0.2):
        chance.note("zip: prefix")
        out += chance.choice((b"\0", b"\x80\x02N.", chance.sled(), bytes(512)))
    shift = len(out) if chance.often(0.5) else 0
    records = [_add_member(chance, out, member, shift, is_odd=is_odd) for member in members]
    if is_odd and chance.often(0.4):
        _add_contradictory_ends(chance, out, records, shift)
    else:
        start = len(out)
        out += b"".join(records)
        directory = _Directory(start - shift, len(out) - start, len(records))
        if is_odd and chance.often(0.3):
            chance.note("zip64")
            _add_end64(out, directory, len(out) - shift)
        _add_end(chance, out, directory, is_odd=is_odd)
    if is_odd and chance.often(0.1):
        chance.note("zip: suffix")
        out += chance.choice((b"\0", bytes(40), b"N."))
    return bytes(out)


def _pressed(chance: Chance, member: Member) -> tuple[int, bytes]:
    method = 0 if member.is_stored and chance.often(0.95) else chance.choice((0, 0, 0, 0, 0, 8, 8, 8, 12, 14))
    if method == 8:
        pressed = zlib.compressobj(6, zlib.DEFLATED, -15)
        empty = chance.choice((0, 0, 0, 0, 3, 14_000 if chance.often(0.02) else 1))
        return 8, _EMPTY_BLOCK * empty + pressed.compress(member.data) + pressed.flush()
    if method == 12:
        return 12, bz2.compress(member.data)
    if method == 14:
        lzma = LZMACompressor()
        return 14, lzma.compress(member.data) + lzma.flush()
    return 0, member.data


def _add_member(chance: Chance, out: bytearray, member: Member, shift: int, *, is_odd: bool) -> bytes:
    """Append a member, and return its record of the directory."""
    method, body = _pressed(chance, member)
    name = member.name.encode()
    place, crc = len(out) - shift, zlib.crc32(member.data)
    sizes = [crc, len(body), len(member.data)]
    flags, extra, local_name, local_sizes, after = 0, b"", name, sizes, b""
    if is_odd and chance.often(0.1):
        chance.note("zip: descriptor")
        flags, local_sizes = 8, [0, 0, 0]
        after = chance.choice((b"PK\x07\x08", b"")) + struct.pack("<3L", *sizes)
    if is_odd and chance.often(0.05):
        chance.note("zip: extra")
        extra = chance.choice((b"\1\0\x10\0" + struct.pack("<2Q", *sizes[1:]), b"up\5\0\1\0\0\0\0", b"\xfe\xca\0\0"))
    if is_odd and chance.often(0.02):
        chance.note("zip: another local name")
        local_name = chance.choice((b"x", name[::-1], name + b"\0"))
    out += _LOCAL.pack(b"PK\3\4", 20, flags, method, 0, 33, *local_sizes, len(local_name), len(extra))
    out += local_name + extra + body + after
    if is_odd and chance.often(0.03):
        chance.note("zip: gap")
        out += chance.choice((b"\0", bytes(50), chance.sled()))
    if is_odd and chance.often(0.03):
        chance.note("zip: odd size")
        sizes = [sizes[0], *(chance.choice((size, 0, size + 1, max(size - 1, 0), 2**32 - 1)) for size in sizes[1:])]
    head = (b"PK\1\2", 20, 20, flags, method, 0, 33, *sizes, len(name), len(extra))
    return _CENTRAL.pack(*head, 0, 0, 0, 0, place) + name + extra


def _add_contradictory_ends(chance: Chance, out: bytearray, records: list[bytes], shift: int) -> None:
    """Append two directories, and end records that name either or both."""
    chance.note("zip: two directories")
    some = [record for record in records if chance.often(0.5)]
    halves = [records, some] if chance.often(0.5) else [some, records]
    first = _add_directory(out, halves[0], shift)
    if chance.often(0.4) and halves[1]:
        _add_end64_in_comment(chance, out, first, halves[1], shift)
        return
    if chance.often(0.1):
        out += bytes(chance.choice((1, 20, 56, 76)))
    second = _add_directory(out, halves[1], shift)
    both = _Directory(first.start, first.nbytes + second.nbytes, first.count + second.count)
    options = (first, second, both, _Directory(first.start, second.nbytes, second.count))
    if chance.often(0.7):
        chance.note("zip64")
        place = len(out) - shift
        _add_end64(out, chance.choice(options), place if chance.often(0.7) else chance.randrange(len(out)))
        if chance.often(0.2):
            out[-20:-20] = bytes(chance.choice((1, 8, 56)))
    end = chance.choice((*options, _Directory(2**32 - 1, 2**32 - 1, 2**16 - 1)))
    _add_end(chance, out, end, is_odd=True)


def _add_directory(out: bytearray, records: list[bytes], shift: int) -> _Directory:
    start = len(out)
    out += b"".join(records)
    return _Directory(start - shift, len(out) - start, len(records))


def _add_end64_in_comment(
    chance: Chance, out: bytearray, first: _Directory, records: list[bytes], shift: int
) -> None:
    """Append a directory that ends with records of zip64, as the comment of a member: they name the first one."""
    chance.note("zip: zip64 in a comment")
    ends = bytearray()
    _add_end64(ends, first, len(out) - shift)
    if chance.often(0.5):  # the record before the directory, only its locator at the end
        out += ends[:56]
        comment = bytes(chance.choice((0, 1, 56))) + ends[56:]
    else:
        before = sum(map(len, records))
        comment = ends[:56] + _LOCATOR.pack(b"PK\6\7", 0, len(out) + before - shift, 1)
    last = records[-1][:32] + len(comment).to_bytes(2, "little") + records[-1][34:] + comment
    second = _add_directory(out, [*records[:-1], last], shift)
    _add_end(chance, out, chance.choice((first, second, second)), is_odd=chance.often(0.2))


def _add_end64(out: bytearray, directory: _Directory, place: int) -> None:
    counts = (directory.count, directory.count, directory.nbytes, directory.start)
    out += _END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, *counts) + _LOCATOR.pack(b"PK\6\7", 0, place, 1)


def _add_end(chance: Chance, out: bytearray, directory: _Directory, *, is_odd: bool) -> None:
    comment, said = b"", None
    if is_odd and chance.often(0.2):
        chance.note("zip: comment")
        comment = chance.choice((b"a", bytes(30), chance.sled(), _END.pack(b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)))
        said = chance.choice((len(comment), len(comment), 0, len(comment) + 1))
    fields = [0, 0, directory.count, directory.count, directory.nbytes, directory.start]
    if is_odd and chance.often(0.1):
        chance.note("zip: masked end")
        fields[chance.randrange(2, 6)] = 2**16 - 1
        fields[chance.randrange(4, 6)] = 2**32 - 1
    out += _END.pack(b"PK\5\6", *fields, len(comment) if said is None else said) + comment
