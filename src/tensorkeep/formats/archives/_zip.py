"""Zip archives, read so strictly that no other reader can find different members in one.

The contract of `read_archive`: members follow each other without a gap from the first byte to the directory; the
directory ends where the end records begin; the end records end the archive. Where local headers, data descriptors,
the directory and the end records repeat each other, they agree. Anything else is refused. `examine_archive` collects
the violations instead and returns every member that any reader could find.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tensorkeep.errors import ArchiveError, LimitError
from tensorkeep.formats.archives._zip_directory import DEFLATED, Entry, parse_directory
from tensorkeep.formats.archives._zip_end import TAIL_NBYTES, Place, find_directory, has_end_record
from tensorkeep.formats.archives._zip_faults import ArchiveFault, FaultLog
from tensorkeep.formats.archives._zip_layout import LOCAL_NBYTES, Run, check_run, parse_start, plan_runs
from tensorkeep.formats.archives._zip_names import decode_names, name_members
from tensorkeep.limits import MAX_ARCHIVE_MEMBERS, MAX_DIRECTORY_NBYTES, MAX_INFLATED_NBYTES, MAX_INFLATION
from tensorkeep.transport import ByteRange, ByteSource

_SMALL_NBYTES: Final = 2**20
_BATCH_NBYTES: Final = 16 * 2**20
_MAX_STRAYS: Final = 1000


class Member(msgspec.Struct, frozen=True, gc=False):
    """One member of an archive.

    Attributes:
        name: Its path without the top folder.
        span: Its stored bytes in the source.
        nbytes: Size of its contents in bytes, uncompressed.
        is_compressed: Whether the stored bytes are deflated.
        crc: CRC-32 of its contents; 0 if the writer computed none.
        head: Its first stored bytes, if they were asked for.
    """

    name: str
    span: ByteRange
    nbytes: int
    is_compressed: bool
    crc: int
    head: bytes = b""


class Archive(msgspec.Struct, frozen=True):
    """A zip archive.

    Attributes:
        top: The folder that contains all members; empty if there is none.
        members: Name to member, in the order of the directory.
        doubles: Further members with the same names, which other readers may prefer.
        unread: Names of members that are encrypted, compressed by an unknown method, or whose data cannot be found.
    """

    top: str
    members: dict[str, Member]
    doubles: tuple[Member, ...] = ()
    unread: tuple[str, ...] = ()


def read_archive(
    source: ByteSource, span: ByteRange | None = None, *, has_top: bool = True, head_nbytes: int = 0
) -> Archive:
    """Read the directory of an archive, and check all local headers against it.

    Torch puts all members into one top folder; NumPy (`has_top=False`) gives them any names, and may deflate them.
    With its local header, the first `head_nbytes` bytes of each member are read, at most 8 KiB.
    """
    log = FaultLog(source.name, strict=True)
    return _read(_Slice(source, span), log, has_top=has_top, head_nbytes=head_nbytes)


def examine_archive(source: ByteSource, span: ByteRange | None = None) -> tuple[Archive, list[ArchiveFault]]:
    """Read as much of an archive as possible, and list what is wrong with it."""
    log = FaultLog(source.name, strict=False)
    return _read(_Slice(source, span), log), log.faults


def ends_like_a_zip(source: ByteSource, span: ByteRange) -> bool:
    """Say whether the end of a range looks like the end of a zip archive, whatever the start looks like."""
    return has_end_record(bytes(source.read(ByteRange(max(span.start, span.stop - TAIL_NBYTES), span.stop))))


def read_member(source: ByteSource, member: Member, max_nbytes: int) -> bytes:
    """Return the contents of a member, inflated, after checking the CRC-32."""
    limit = min(max_nbytes, MAX_INFLATED_NBYTES) if member.is_compressed else max_nbytes
    n_stored = len(member.span)
    if member.nbytes > limit or n_stored > limit + _SMALL_NBYTES:
        raise LimitError(
            f"member `{member.name}` is too large",
            path=source.name,
            expected=f"at most {limit:,} bytes",
            found=f"{max(member.nbytes, n_stored):,}",
        )
    if member.is_compressed and member.nbytes > max(_SMALL_NBYTES, MAX_INFLATION * n_stored):
        raise LimitError(
            f"member `{member.name}` is a zip bomb",
            path=source.name,
            expected=f"at most {MAX_INFLATION} times its {n_stored:,} bytes",
            found=f"{member.nbytes:,} bytes",
        )
    data = bytes(source.read(member.span))
    if member.is_compressed:
        data = _inflate(data, member, source.name)
    if member.crc and zlib.crc32(data) != member.crc:
        raise ArchiveError(
            f"member `{member.name}` is damaged",
            path=source.name,
            expected=f"CRC-32 {member.crc:#010x}",
            found=f"{zlib.crc32(data):#010x}",
        )
    return data


def _inflate(data: bytes, member: Member, path: str) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        inflated = inflater.decompress(data, member.nbytes + 1)
    except zlib.error as error:
        raise ArchiveError(f"member `{member.name}` cannot be inflated", path=path, found=str(error)) from None
    if len(inflated) != member.nbytes or not inflater.eof or inflater.unused_data:
        found = f"{len(inflated):,} bytes{'' if inflater.eof else ', and more'}"
        raise ArchiveError(
            f"member `{member.name}` does not inflate to its declared size",
            path=path,
            expected=f"{member.nbytes:,} bytes",
            found=found,
        )
    return inflated


class _Slice:
    """The bytes of one archive within a source; positions count from the start of the archive."""

    def __init__(self, source: ByteSource, span: ByteRange | None) -> None:
        self.source = source
        span = ByteRange(0, source.nbytes) if span is None else span
        if span.stop > source.nbytes:
            raise ArchiveError(
                "the archive extends beyond the end of the file",
                path=source.name,
                expected=f"an end up to byte {source.nbytes:,}",
                found=f"byte {span.stop:,}",
            )
        self.base = span.start
        self.nbytes = len(span)

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.nbytes)
        return bytes(self.source.read(ByteRange(self.base + start, self.base + stop))) if start < stop else b""

    def read_runs(self, runs: Iterable[Run]) -> Iterator[tuple[Run, bytearray]]:
        """Read runs, short ones many at a time."""
        batch: list[tuple[Run, bytearray]] = []
        n_batch = 0
        for run in runs:
            size = run.stop - run.start
            if batch and n_batch + size > _BATCH_NBYTES:
                yield from self._filled(batch)
                batch, n_batch = [], 0
            batch.append((run, bytearray(size)))
            n_batch += size
        yield from self._filled(batch)

    def _filled(self, batch: list[tuple[Run, bytearray]]) -> list[tuple[Run, bytearray]]:
        self.source.read_into([(self.base + run.start, memoryview(into)) for run, into in batch])
        return batch


def _read(archive: _Slice, log: FaultLog, *, has_top: bool = True, head_nbytes: int = 0) -> Archive:
    """Read every directory that an end record claims: exactly one, unless faults are collected."""
    top = ""
    members: dict[str, Member] = {}
    doubles: dict[Member, None] = {}
    unread: dict[str, None] = {}
    for place in find_directory(archive.read, archive.nbytes, log):
        entries = _read_entries(archive, place, log)
        _locate(archive, entries, place.start, log, head_nbytes)
        folder, names = name_members(entries, log) if has_top else ("", decode_names(entries, log))
        top = top or folder
        for name, entry in zip(names, entries, strict=True):
            stored_stop = entry.start + entry.n_stored
            if not entry.is_readable or entry.start < 0 or stored_stop > archive.nbytes:
                unread[name] = None
                continue
            stored = ByteRange(archive.base + entry.start, archive.base + stored_stop)
            member = Member(name, stored, entry.nbytes, entry.method == DEFLATED, entry.crc, entry.head)
            other = members.setdefault(name, member)
            if other is not member and other != member:
                log.add("duplicate name", entry.name)
                doubles[member] = None
    if has_top:  # file systems that ignore case unpack two members to one file; keys of arrays are never unpacked
        _refuse_equal_names(members, log)
    return Archive(top, members, tuple(doubles), tuple(unread))


def _read_entries(archive: _Slice, place: Place, log: FaultLog) -> list[Entry]:
    for what, found, limit in (
        ("members", place.n_members, MAX_ARCHIVE_MEMBERS),
        ("bytes of directory", place.stop - place.start, MAX_DIRECTORY_NBYTES),
    ):
        if found > limit:
            raise LimitError(
                f"the archive has too many {what}",
                path=archive.source.name,
                expected=f"at most {limit:,}",
                found=f"{found:,}",
            )
    most = place.n_members if log.strict else MAX_ARCHIVE_MEMBERS
    entries = parse_directory(archive.read(place.start, place.stop), place.n_members, most, log)
    for entry in entries if place.shift else ():
        entry.offset = max(entry.offset + place.shift, 0)
    return entries


def _locate(archive: _Slice, entries: list[Entry], directory_start: int, log: FaultLog, head_nbytes: int) -> None:
    """Find where the data of each member starts, by its local header."""
    runs, strays = plan_runs(entries, directory_start, log, head_nbytes)
    for run, data in archive.read_runs(runs):
        check_run(run, data, log, head_nbytes)
    for entry in strays[:_MAX_STRAYS]:
        parse_start(archive.read(entry.offset, entry.offset + LOCAL_NBYTES), entry)


def _refuse_equal_names(members: dict[str, Member], log: FaultLog) -> None:
    """Report names that differ only in upper and lower case."""
    folded = {name.casefold() for name in members}
    if len(folded) != len(members):
        for name in members:
            if name.casefold() not in folded:
                log.add("another member's name differs only in upper and lower case", name, is_harmless=True)
            folded.discard(name.casefold())
