"""The end of a zip archive: the records that locate its directory. Pure.

Readers differ in which of these records they believe. Here each is a claim: in a good archive all claims agree, and
the directory ends exactly where the end records start.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from tensorkeep.errors import ArchiveError
from tensorkeep.formats.archives._zip_faults import FaultLog

TAIL_NBYTES: Final = 22 + 65_535 + 4_096
"""Bytes at the end of an archive in which readers look for the end record.

These are the record and the longest comment. Python looks at one byte more, and torch at up to a block more.
"""

ALL_ONES_32: Final = 0xFFFF_FFFF
"""A field with this value has its real value in a zip64 field."""

ENTRY_SIGNATURE: Final = b"PK\1\2"
"""First bytes of a directory entry."""

_ALL_ONES_16: Final = 0xFFFF

_END: Final = struct.Struct("<4s4H2IH")
_LOCATOR: Final = struct.Struct("<4sIQI")
_WIDE_END: Final = struct.Struct("<4sQ2H2I4Q")
_END_SIGNATURE: Final = b"PK\5\6"
_LOCATOR_SIGNATURE: Final = b"PK\6\7"
_WIDE_END_SIGNATURE: Final = b"PK\6\6"

_MAX_CANDIDATES: Final = 64
"""Candidates for the end record that are tried when faults are collected."""


class Claim(msgspec.Struct, frozen=True):
    """Where an end record says that the directory is.

    Attributes:
        start: First byte, counted from the start of the archive.
        nbytes: Its size in bytes.
        n_members: Entries in it.
        stop: Where it must end: the first byte of the end records. Observed, not claimed.
    """

    start: int
    nbytes: int
    n_members: int
    stop: int


class Place(msgspec.Struct, frozen=True):
    """Where a reader would look for the directory.

    Attributes:
        start: First byte, counted from the start of the archive.
        stop: One past the last byte.
        n_members: Entries that it is declared to have.
        shift: Bytes that this reader would add to the offsets of members.
    """

    start: int
    stop: int
    n_members: int
    shift: int


def has_end_record(tail: bytes) -> bool:
    """Say whether the last bytes of a file may hold an end record."""
    return _END_SIGNATURE in tail


def find_directory(read: Callable[[int, int], bytes], nbytes: int, log: FaultLog) -> list[Place]:
    """Return where readers would look for the directory: one place, unless faults are collected."""
    tail_start = max(nbytes - TAIL_NBYTES, 0)
    tail = read(tail_start, nbytes)
    search_stop = max(len(tail) - _END.size + len(_END_SIGNATURE), 0)
    is_empty = nbytes == _END.size  # an archive without members, which has nothing but its end record
    for _ in range(_MAX_CANDIDATES):
        end = tail.rfind(_END_SIGNATURE, 0, search_stop)
        if end < 0:
            break
        n_faults = len(log.faults)
        claims = _claims_at(read, tail_start + end, nbytes, tail[end:], log)
        places: dict[tuple[int, int, int], Place] = {}
        for claim in claims:
            for place in _places(claim, log):
                if log.strict or is_empty or _has_entries(read, place):
                    places.setdefault((place.start, place.stop, place.shift), place)
        if len(places) > 1:
            log.add("its end records lead to several directories", expected=1, found=len(places))
        if places:
            return list(places.values())
        log.forget(n_faults)
        search_stop = end + len(_END_SIGNATURE) - 1
    raise ArchiveError(
        "truncated zip archive: no end-of-central-directory record",
        path=log.path,
        expected=f"an end record (PK\\5\\6) in its last {_END.size} bytes",
        hint="Download or copy it again",
    )


def _places(claim: Claim, log: FaultLog) -> Iterator[Place]:
    """Yield the places where readers would look for a claimed directory.

    Some trust the declared start. Others count back from the end records and take whatever precedes the archive for
    a self-extracting program.
    """
    counted = claim.stop - claim.nbytes
    if counted != claim.start:
        what = "bytes before the archive, or in it" if counted > claim.start else "the end record"
        log.add(f"{what}: the directory is not at its declared position", expected=counted, found=claim.start)
    for start in (claim.start, counted):
        if start >= 0:
            yield Place(start, start + claim.nbytes, claim.n_members, start - claim.start)


def _has_entries(read: Callable[[int, int], bytes], place: Place) -> bool:
    return read(place.start, place.start + len(ENTRY_SIGNATURE)) == ENTRY_SIGNATURE


def _claims_at(read: Callable[[int, int], bytes], place: int, nbytes: int, tail: bytes, log: FaultLog) -> list[Claim]:
    """Read the end record at a position, and the zip64 records before it."""
    _, disk, directory_disk, n_here, n_members, size, start, n_comment = _END.unpack_from(tail)
    trailing = nbytes - place - _END.size
    if trailing:
        what = "a comment" if n_comment == trailing else "bytes"
        is_harmless = n_comment == trailing
        log.add(f"{what} after the end of the archive", expected=0, found=trailing, is_harmless=is_harmless)
    elif n_comment:
        log.add("the archive ends inside its comment", expected=n_comment, found=0)
    if disk or directory_disk or n_here != n_members:
        log.add("the archive is split into several parts", found=_parts(disk, directory_disk, n_here, n_members))
    plain = Claim(start, size, n_members, place)
    locator_place = place - _LOCATOR.size
    locator = read(max(locator_place, 0), place)
    if not locator.startswith(_LOCATOR_SIGNATURE) or len(locator) != _LOCATOR.size:
        return [plain]
    wide = _wide_claims(read, locator_place, locator, nbytes, log)
    for claim in wide:
        _compare(plain, claim, log)
    if log.strict:
        return wide
    is_believed = not any(
        claim.stop == locator_place - _WIDE_END.size for claim in wide
    )  # by Python, which then finds no zip64 record
    return [*wide, plain if is_believed else msgspec.structs.replace(plain, stop=start + size)]


def _wide_claims(
    read: Callable[[int, int], bytes], locator_place: int, locator: bytes, nbytes: int, log: FaultLog
) -> list[Claim]:
    """Read the zip64 end record: right before its locator, where it must be, and where the locator points."""
    _, disk, stated, n_disks = _LOCATOR.unpack(locator)
    actual = locator_place - _WIDE_END.size
    if disk or n_disks != 1:
        log.add("the archive is split into several parts", expected="disk 0 of 1", found=f"disk {disk} of {n_disks}")
    if stated != actual:
        what = "bytes before the archive, or in it" if actual > stated else "the locator"
        log.add(f"{what}: the zip64 end record is not at its declared position", expected=actual, found=stated)
    claims = []
    for place in dict.fromkeys((stated, actual)):
        if not 0 <= place <= nbytes - _WIDE_END.size:
            continue
        record = _WIDE_END.unpack(read(place, place + _WIDE_END.size))
        signature, record_nbytes, _, _, disk, directory_disk, n_here, n_members, size, start = record
        if signature != _WIDE_END_SIGNATURE:
            continue
        if record_nbytes != _WIDE_END.size - 12:
            log.add("the zip64 end record has an unexpected size", expected=_WIDE_END.size - 12, found=record_nbytes)
        if disk or directory_disk or n_here != n_members:
            log.add("the archive is split into several parts", found=_parts(disk, directory_disk, n_here, n_members))
        claims.append(Claim(start, size, n_members, place))
    if not claims:
        log.add("the zip64 end record is missing", expected=f"PK\\6\\6 at byte {actual:,}")
    return claims


def _parts(disk: int, directory_disk: int, n_here: int, n_members: int) -> str:
    return f"disk {disk}, the directory on disk {directory_disk}, {n_here:,} of {n_members:,} members"


def _compare(plain: Claim, wide: Claim, log: FaultLog) -> None:
    """Compare the end record with the zip64 one: each field is equal, or all ones."""
    for what, narrow, whole, all_ones in (
        ("start", plain.start, wide.start, ALL_ONES_32),
        ("size", plain.nbytes, wide.nbytes, ALL_ONES_32),
        ("number of members", plain.n_members, wide.n_members, _ALL_ONES_16),
    ):
        if narrow not in {whole, all_ones}:
            log.add(f"the two end records disagree on the directory's {what}", expected=whole, found=narrow)
