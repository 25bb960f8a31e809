"""A zip archive of stored members, as bytes: each header before its data, and the directory after all. Pure.

The data of each member can begin at a multiple of some bytes: a field that readers skip fills the gap. Archives of
equal members are equal, since all have the first date that a zip archive can have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.errors import ArchiveError
from tensorkeep.formats.archives._zip_directory import IS_UTF8, PADDING, WIDE, Entry
from tensorkeep.formats.archives._zip_end import ALL_ONES_32
from tensorkeep.formats.archives._zip_faults import FaultLog
from tensorkeep.formats.archives._zip_names import decode_names

CRC_START: Final = 14
"""Where the checksum is in the header of a member."""

_LOCAL: Final = struct.Struct("<4s5H3I2H")
_ENTRY: Final = struct.Struct("<4s6H3I5H2I")
_END: Final = struct.Struct("<4s4H2IH")
_WIDE_END: Final = struct.Struct("<4sQ2H2I4Q")
_LOCATOR: Final = struct.Struct("<4sIQI")
_FIELD: Final = struct.Struct("<2H")

_VERSION: Final = 20
_WIDE_VERSION: Final = 45
_MIDNIGHT: Final = 0
_FIRST_DAY: Final = 0x0021
"""1 January 1980."""

_MAX_NAME_NBYTES: Final = 0xFFFF
_MAX_PLAIN_MEMBERS: Final = 0xFFFE


class WrittenMember(msgspec.Struct, gc=False):
    """A member of an archive that is being written.

    Attributes:
        name: Its name in UTF-8.
        offset: First byte of its header.
        nbytes: Bytes of its data.
        crc: CRC-32 of its data, which may be set after the header was written.
    """

    name: bytes
    offset: int
    nbytes: int
    crc: int = 0


def name_problem(name: str) -> str | None:
    """Return why a member cannot have a name: readers would differ, or unpack it elsewhere; None if it can."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it is not Unicode"
    if len(encoded) > _MAX_NAME_NBYTES:
        return f"it is longer than {_MAX_NAME_NBYTES:,} bytes"
    try:
        decode_names([Entry(encoded, IS_UTF8, 0, 0, 0, 0, 0)], FaultLog("", strict=True))
    except ArchiveError as error:
        return error.message.rpartition(": ")[2]
    return None


def emit_header(member: WrittenMember, *, align: int = 1) -> bytes:
    """Return what precedes the data of a member, which then begins at a multiple of `align` bytes."""
    is_wide = member.nbytes >= ALL_ONES_32
    extra = _FIELD.pack(WIDE, 16) + struct.pack("<2Q", member.nbytes, member.nbytes) if is_wide else b""
    gap = -(member.offset + _LOCAL.size + len(member.name) + len(extra)) % align
    if gap:
        gap += align if gap < _FIELD.size else 0
        extra += _FIELD.pack(PADDING, gap - _FIELD.size) + bytes(gap - _FIELD.size)
    nbytes = ALL_ONES_32 if is_wide else member.nbytes
    head = _LOCAL.pack(
        b"PK\3\4",
        _WIDE_VERSION if is_wide else _VERSION,
        _flags(member.name),
        0,
        _MIDNIGHT,
        _FIRST_DAY,
        member.crc,
        nbytes,
        nbytes,
        len(member.name),
        len(extra),
    )
    return head + member.name + extra


def emit_directory(members: Iterable[WrittenMember], start: int) -> bytes:
    """Return everything after the last member; `start` is the position of its first byte."""
    entries = [_entry(member) for member in members]
    directory = b"".join(entries)
    n_members, stop = len(entries), start + len(directory)
    n_short = min(n_members, 0xFFFF)
    end = _END.pack(b"PK\5\6", 0, 0, n_short, n_short, min(len(directory), ALL_ONES_32), min(start, ALL_ONES_32), 0)
    if n_members <= _MAX_PLAIN_MEMBERS and stop < ALL_ONES_32:
        return directory + end
    wide_end = _WIDE_END.pack(
        b"PK\6\6",
        _WIDE_END.size - 12,
        _WIDE_VERSION,
        _WIDE_VERSION,
        0,
        0,
        n_members,
        n_members,
        len(directory),
        start,
    )
    return directory + wide_end + _LOCATOR.pack(b"PK\6\7", 0, stop, 1) + end


def _entry(member: WrittenMember) -> bytes:
    wide = [member.nbytes, member.nbytes] if member.nbytes >= ALL_ONES_32 else []
    wide += [member.offset] if member.offset >= ALL_ONES_32 else []
    extra = _FIELD.pack(WIDE, 8 * len(wide)) + struct.pack(f"<{len(wide)}Q", *wide) if wide else b""
    nbytes = min(member.nbytes, ALL_ONES_32)
    version = _WIDE_VERSION if wide else _VERSION
    head = _ENTRY.pack(
        b"PK\1\2",
        version,
        version,
        _flags(member.name),
        0,
        _MIDNIGHT,
        _FIRST_DAY,
        member.crc,
        nbytes,
        nbytes,
        len(member.name),
        len(extra),
        0,
        0,
        0,
        0,
        min(member.offset, ALL_ONES_32),
    )
    return head + member.name + extra


def _flags(name: bytes) -> int:
    return 0 if name.isascii() else IS_UTF8
