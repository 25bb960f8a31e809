"""How the members of a zip archive follow each other: local header, data, descriptor, without a gap. Pure.

The directory almost determines where each member's data is: it ends where the next member starts, minus a descriptor.
So only the bytes between the data of large members are read, and many small members in one run.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Final

import msgspec

from tensorkeep.formats.archives._zip_directory import HAS_DESCRIPTOR, PADDING, WIDE, Entry, split_extra
from tensorkeep.formats.archives._zip_end import ALL_ONES_32
from tensorkeep.formats.archives._zip_faults import FaultLog, printable

_LOCAL: Final = struct.Struct("<4s2x2H4x3I2H")
_SIGNATURE: Final = b"PK\3\4"
LOCAL_NBYTES: Final = _LOCAL.size
"""Bytes of a local header, without name and extra fields."""

_DESCRIPTOR: Final = struct.Struct("<4s3I")
_WIDE_DESCRIPTOR: Final = struct.Struct("<4sI2Q")
_DESCRIPTOR_SIGNATURE: Final = b"PK\7\x08"
_EXTRA_HEAD: Final = struct.Struct("<2H")
_WIDE_EXTRA: Final = struct.Struct("<2H2Q")

_READ_THROUGH_NBYTES: Final = 8 * 2**10
"""Members up to this size are read along with their neighbors; skipping them would cost more."""

_RUN_NBYTES: Final = 8 * 2**20
"""Bytes of members that are read in one run."""

_MAX_SPARE: Final = 0xFFFF + _WIDE_DESCRIPTOR.size
"""Most bytes that extra fields and the descriptor of a member can take."""


class Run(msgspec.Struct):
    """A part of the archive to read at once.

    Attributes:
        start: First byte, counted from the start of the archive.
        stop: One past the last byte.
        entries: Members whose headers it holds, in order.
        followings: For each of them, where the next member starts.
        before: A large member whose descriptor it includes, and where the next member starts; or None.
    """

    start: int
    stop: int
    entries: list[Entry]
    followings: list[int]
    before: tuple[Entry, int] | None = None


def plan_runs(
    entries: list[Entry], directory_start: int, log: FaultLog, head_nbytes: int = 0
) -> tuple[list[Run], list[Entry]]:
    """Plan which parts to read to see all headers and descriptors, and so many bytes of the data of each member.

    Also return members that do not fit anywhere.
    """
    ordered = sorted(entries, key=attrgetter("offset"))
    offsets = [entry.offset for entry in ordered] + [directory_start]
    if offsets[0]:
        log.add("bytes before the first member", expected=0, found=offsets[0])
    runs: list[Run] = []
    strays: list[Entry] = []
    run = Run(0, -1, [], [])
    before = None
    for entry, following in zip(ordered, offsets[1:], strict=True):
        offset = entry.offset
        n_stored = entry.n_stored
        spare = following - offset - n_stored - LOCAL_NBYTES - len(entry.name)
        if not 0 <= spare <= _MAX_SPARE or following > directory_start:
            what = "it overlaps the next member" if spare < 0 else "a gap follows it"
            log.add(what, entry.name, expected=f"the end of it at byte {following:,}")
            strays.append(entry)
            continue
        if offset != run.stop or offset - run.start > _RUN_NBYTES:
            has_descriptor = before is not None and before[1] == offset
            run = Run(max(offset - _WIDE_DESCRIPTOR.size, 0), offset, [], [], before if has_descriptor else None)
            runs.append(run)
        run.entries.append(entry)
        run.followings.append(following)
        is_large = n_stored > _READ_THROUGH_NBYTES
        run.stop = following - n_stored + head_nbytes if is_large else following
        before = (entry, following) if is_large else None
    if before is not None:
        runs.append(Run(before[1] - _WIDE_DESCRIPTOR.size, before[1], [], [], before))
    return runs, strays


def parse_start(header: bytes, entry: Entry) -> None:
    """Set where the data starts, by the local header alone, for a member that does not fit anywhere."""
    if len(header) == LOCAL_NBYTES and header.startswith(_SIGNATURE):
        n_name, n_extra = _EXTRA_HEAD.unpack_from(header, LOCAL_NBYTES - _EXTRA_HEAD.size)
        entry.start = entry.offset + LOCAL_NBYTES + n_name + n_extra


def check_run(run: Run, data: bytearray, log: FaultLog, head_nbytes: int = 0) -> None:
    """Compare local headers and descriptors with the directory, and keep so many bytes of the data of each member."""
    base = run.start
    if run.before is not None:
        entry, following = run.before
        _check_descriptor(entry, data, following - base, log)
    for entry, following in zip(run.entries, run.followings, strict=True):
        _check_header(entry, data, base, log)
        if entry.start < 0:
            continue
        if head_nbytes:
            first = entry.start - base
            entry.head = bytes(data[first : first + min(head_nbytes, entry.n_stored)])
        stop = entry.start + entry.n_stored + entry.n_descriptor
        if stop != following:
            what = "it overlaps the next member" if stop > following else "a gap follows it"
            log.add(what, entry.name, expected=f"the end of it at byte {following:,}", found=f"byte {stop:,}")
        elif entry.n_descriptor and following <= run.stop:
            _check_descriptor(entry, data, following - base, log)


def _check_header(entry: Entry, data: bytearray, base: int, log: FaultLog) -> None:
    """Compare one local header with the directory; `base` is the position of the data in the archive."""
    place = entry.offset - base
    signature, flags, method, crc, n_stored, nbytes, n_name, n_extra = _LOCAL.unpack_from(data, place)
    if signature != _SIGNATURE:
        log.add("it has no local header", entry.name, expected="PK\\3\\4", found=repr(signature))
        return
    name_start = place + LOCAL_NBYTES
    extra_start = name_start + n_name
    extra_stop = extra_start + n_extra
    entry.start = base + extra_stop
    has_descriptor = flags & HAS_DESCRIPTOR
    entry.n_descriptor = _DESCRIPTOR.size if has_descriptor else 0
    if n_name != len(entry.name) or not data.startswith(entry.name, name_start):
        log.add(
            "its local header and the directory disagree on its name",
            entry.name,
            found=printable(data[name_start:extra_start]),
        )
    if flags != entry.flags or method != entry.method:
        expected = f"flags {entry.flags:#06x} and method {entry.method}"
        log.add(
            "its local header and the directory disagree on flags or method",
            entry.name,
            expected=expected,
            found=f"{flags:#06x} and {method}",
        )
    is_padded = n_extra >= 4 and extra_stop <= len(data)
    if n_extra == _WIDE_EXTRA.size and n_stored == nbytes == ALL_ONES_32 and _is_wide(entry, data, extra_start):
        n_stored, nbytes = entry.n_stored, entry.nbytes
        entry.n_descriptor = _WIDE_DESCRIPTOR.size if has_descriptor else 0
    elif n_extra and not (is_padded and _EXTRA_HEAD.unpack_from(data, extra_start) == (PADDING, n_extra - 4)):
        fields = split_extra(bytes(data[extra_start:extra_stop]), entry.name, log)
        if WIDE in fields:
            n_stored, nbytes = _wide_sizes(fields[WIDE], n_stored, nbytes, entry, log)
            entry.n_descriptor = _WIDE_DESCRIPTOR.size if has_descriptor else 0
    sums = (entry.crc, entry.n_stored, entry.nbytes)
    expected_sums = (0, 0, 0) if has_descriptor else sums
    if (crc, n_stored, nbytes) != expected_sums:
        found = repr((crc, n_stored, nbytes))
        log.add(
            "its local header and the directory disagree on checksum or size",
            entry.name,
            expected=repr(expected_sums),
            found=found,
            is_harmless=has_descriptor and {crc, n_stored, nbytes} <= {0, *sums},
        )


def _is_wide(entry: Entry, data: bytearray, place: int) -> bool:
    """Say whether the zip64 field at a place, as NumPy writes it for every member, has the sizes of the directory."""
    return data.startswith(_WIDE_EXTRA.pack(WIDE, 16, entry.nbytes, entry.n_stored), place)


def _wide_sizes(wide: bytes, n_stored: int, nbytes: int, entry: Entry, log: FaultLog) -> tuple[int, int]:
    """Return the sizes that a local header with a zip64 field declares.

    By the standard, the field replaces sizes that are all ones. Torch leaves them 0, since a descriptor follows, and
    puts into the field what is too large for the directory: the size, the stored size (still 0 then), the offset.
    """
    if n_stored == nbytes == ALL_ONES_32 and len(wide) == 16:
        nbytes, n_stored = struct.unpack("<2Q", wide)
        return n_stored, nbytes
    listed = [entry.nbytes, 0] if entry.nbytes >= ALL_ONES_32 else []
    listed += [entry.offset] if entry.offset >= ALL_ONES_32 else []
    if not entry.flags & HAS_DESCRIPTOR or wide != struct.pack(f"<{len(listed)}Q", *listed):
        log.add("the zip64 field of its local header and the directory disagree", entry.name, found=repr(wide))
    return n_stored, nbytes


def _check_descriptor(entry: Entry, data: bytearray, stop: int, log: FaultLog) -> None:
    """Compare the descriptor that ends at a position with the directory."""
    if not entry.n_descriptor:
        return
    layout = _DESCRIPTOR if entry.n_descriptor == _DESCRIPTOR.size else _WIDE_DESCRIPTOR
    signature, crc, n_stored, nbytes = layout.unpack_from(data, stop - layout.size)
    if signature != _DESCRIPTOR_SIGNATURE:
        log.add("it has no descriptor", entry.name, expected="PK\\7\\8 after its data", found=repr(signature))
    elif crc != entry.crc or n_stored != entry.n_stored or nbytes != entry.nbytes:
        expected, found = _sums(entry.crc, entry.n_stored, entry.nbytes), _sums(crc, n_stored, nbytes)
        log.add("its descriptor and the directory disagree", entry.name, expected=expected, found=found)


def _sums(crc: int, n_stored: int, nbytes: int) -> str:
    return f"CRC-32 {crc:#010x}, {nbytes:,} bytes in {n_stored:,}"
