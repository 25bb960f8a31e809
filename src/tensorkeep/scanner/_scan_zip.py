"""Zip archives of torch, NumPy, Keras and any other program; every member is scanned, whatever its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.archives import (
    Archive,
    ArchiveFault,
    InflatedSource,
    Member,
    examine_archive,
    read_member,
)
from tensorkeep.formats.keras import is_keras_archive
from tensorkeep.formats.npy import is_npz
from tensorkeep.formats.pickles import Audit
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import READ_IN_ORDER, forms_of
from tensorkeep.scanner._programs import report_programs
from tensorkeep.scanner._read_ahead import read_ahead
from tensorkeep.scanner._scan_exported import is_exported, scan_exported
from tensorkeep.scanner._scan_pickles import scan_pickles
from tensorkeep.transport import ByteRange, MemorySource

ScanContent = Callable[[Content], None]
"""Scans the content of a member."""

_UNREAD: Final = "it is encrypted, compressed by an unknown method, or not at its declared position"
_MAX_TIMES: Final = 2
"""How often members may share the bytes of an archive, as those of two directories in one do."""


def scan_zip(content: Content, log: FindingLog, scan: ScanContent, *, is_at_end: bool = False) -> None:
    """Scan an archive."""
    try:
        archive, faults = examine_archive(content.source, content.span)
    except FormatError:
        if is_at_end:
            return
        log.name_form("zip archive", content)
        raise
    members = [*archive.members.values(), *archive.doubles]
    if is_at_end:
        if not archive.unread and log.has_seen(members, content):
            return
        log.add("suspicious", "it is also a zip archive, for readers that start at the end", content)
        faults = []
    is_torch, is_program = any(name.casefold() == "data.pkl" for name in archive.members), is_exported(archive)
    log.name_form(_form_of(archive, content, is_torch=is_torch, is_program=is_program), content)
    serious = [fault for fault in faults if is_torch or is_program or not fault.is_harmless]
    for text in [*map(_fault_text, serious), *(f"member {name}: {_UNREAD}" for name in archive.unread)]:
        log.add("unreadable", text, content)
    report_programs([*archive.members, *archive.unread], content, log)
    _check_overlaps(members, content)
    done = _scan_torch_pickles(content, archive, log) if is_torch else set()
    if is_program:
        scan_exported([_opened(_inner(content, member), member, log) for member in members], log)
    for source, some in read_ahead(content.source, [member for member in members if member not in done]):
        for member in some:
            inner = _inner(msgspec.structs.replace(content, source=source), member)
            with log.recording_errors(inner):
                scan(_opened(inner, member, log))
    log.note_seen(members, content)


def _form_of(archive: Archive, content: Content, *, is_torch: bool, is_program: bool) -> str:
    if is_torch:
        return "TorchScript archive" if "constants.pkl" in archive.members else "PyTorch zip archive"
    if is_program:
        return "program of torch.export"
    if content.place:
        return "zip archive"
    source = content.alone()
    return "NumPy archive" if is_npz(source) else "Keras archive" if is_keras_archive(source) else "zip archive"


def _check_overlaps(members: Iterable[Member], content: Content) -> None:
    n_all = sum(len(member.span) for member in members)
    if n_all > _MAX_TIMES * content.nbytes:
        raise LimitError(
            "members of the archive overlap",
            expected=f"at most {content.nbytes:,} bytes together",
            found=f"{n_all:,}",
        )


def _fault_text(fault: ArchiveFault) -> str:
    text = f"member {fault.member}: {fault.message}" if fault.member else fault.message
    facts = [f"{label} {fact}" for label, fact in (("expected", fault.expected), ("found", fault.found)) if fact]
    return f"{text}: {', '.join(facts)}" if facts else text


def _scan_torch_pickles(content: Content, archive: Archive, log: FindingLog) -> set[Member]:
    """Scan the pickles that torch itself reads, and return them."""
    done: set[Member] = set()
    storages: set[str] = set()
    folders = {"data.pkl": "data", "constants.pkl": "constants"}
    for name, member in archive.members.items():
        folder = folders.get(name.casefold())  # torch ignores case in names of members
        if folder is not None:
            inner = _inner(content, member)
            audits: list[Audit] = []
            with log.recording_errors(inner):
                audits = scan_pickles(_opened(inner, member, log), log, is_certain=True)
            done.add(member)
            storages |= {f"{folder}/{storage.key}" for audit in audits for storage in audit.storages.values()}
    if "constants.pkl" not in archive.members:
        for name in archive.members.keys() - storages:
            if name.startswith("data/"):
                log.add("unknown", "no pickle refers to it", _inner(content, archive.members[name]))
    return done


def _inner(content: Content, member: Member) -> Content:
    return Content(content.source, member.span, (*content.place, member.name), content.is_copy)


def _opened(inner: Content, member: Member, log: FindingLog) -> Content:
    """Return the contents of a member: in place, inflated as they are read, or an inflated copy."""
    if not member.is_compressed:
        return inner
    log.spend(member.nbytes)
    inflated = InflatedSource(inner.source, member)
    opened = Content(inflated, ByteRange(0, member.nbytes), inner.place, is_copy=True)
    if set(forms_of(opened.head(), member.nbytes)) <= READ_IN_ORDER:
        return opened
    source = MemorySource(read_member(inner.source, member, MAX_PICKLE_NBYTES), inner.source.name)
    return Content(source, opened.span, inner.place, is_copy=True)
