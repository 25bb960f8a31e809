"""Zip archives of torch, NumPy, Keras and any other program; every member is scanned, whatever its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.formats.archives import Archive, ArchiveFault, Member, examine_archive, inflate_head, read_member
from tensorkeep.formats.pickles import PICKLE_SUFFIXES, Audit
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import HEAD_NBYTES, Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import compression_of, forms_of
from tensorkeep.scanner._scan_keras import scan_keras_config
from tensorkeep.scanner._scan_pickles import scan_pickles
from tensorkeep.transport import ByteRange, MemorySource

ScanContent = Callable[[Content], None]
"""Scans the content of a member."""

_CONFIGURATION: Final = "config.json"
_UNREAD: Final = "it is encrypted, compressed by an unknown method, or not at its declared position"


def scan_zip(content: Content, log: FindingLog, scan: ScanContent, *, is_at_end: bool = False) -> None:
    """Scan an archive."""
    try:
        archive, faults = examine_archive(content.source, content.span)
    except FormatError:
        if is_at_end:
            return
        log.name_form("zip archive", content)
        raise
    if is_at_end:
        log.add("suspicious", "it is also a zip archive, for readers that start at the end", content)
    raw: set[str] = set()
    if any(name.casefold() == "data.pkl" for name in archive.members):
        log.name_form("TorchScript archive" if "constants.pkl" in archive.members else "PyTorch zip archive", content)
        for fault in () if is_at_end else faults:
            log.add("unreadable", _fault_text(fault), content)
        raw = _scan_torch_pickles(content, archive, log)
    log.name_form("zip archive", content)
    for name in archive.unread:
        log.add("unreadable", f"member {name}: {_UNREAD}", content)
    for member in [*(member for name, member in archive.members.items() if name not in raw), *archive.doubles]:
        inner = _inner(content, member)
        with log.recording_errors(inner):
            _scan_member(inner, member, log, scan)


def _fault_text(fault: ArchiveFault) -> str:
    text = f"member {fault.member}: {fault.message}" if fault.member else fault.message
    facts = [f"{label} {fact}" for label, fact in (("expected", fault.expected), ("found", fault.found)) if fact]
    return f"{text}: {', '.join(facts)}" if facts else text


def _scan_torch_pickles(content: Content, archive: Archive, log: FindingLog) -> set[str]:
    """Scan the pickles that torch itself reads; return their names, and the names of their storages."""
    done: set[str] = set()
    folders = {"data.pkl": "data", "constants.pkl": "constants"}
    for name, member in archive.members.items():
        folder = folders.get(name.casefold())  # torch ignores case in names of members
        if folder is not None:
            inner = _inner(content, member)
            audits: list[Audit] = []
            with log.recording_errors(inner):
                audits = scan_pickles(_opened(inner, member, log), log, is_certain=True)
            storages = [storage for audit in audits for storage in audit.storages.values()]
            done |= {name, *(f"{folder}/{storage.key}" for storage in storages)}
    if "constants.pkl" not in archive.members:
        for name in archive.members.keys() - done:
            if name.startswith("data/"):
                log.add("unknown", "no pickle refers to it", _inner(content, archive.members[name]))
    return done


def _inner(content: Content, member: Member) -> Content:
    return Content(content.source, member.span, (*content.place, member.name), content.is_copy)


def _opened(inner: Content, member: Member, log: FindingLog) -> Content:
    """Return the contents of a member: in place, or a decompressed copy."""
    if not member.is_compressed:
        return inner
    log.spend(member.nbytes)
    data = read_member(inner.source, member, MAX_PICKLE_NBYTES)
    source = MemorySource(data, inner.source.name)
    return Content(source, ByteRange(0, len(data)), inner.place, is_copy=True)


def _scan_member(inner: Content, member: Member, log: FindingLog, scan: ScanContent) -> None:
    """Scan a member. A compressed one is decompressed whole only if its start makes that necessary."""
    is_configuration = member.name.endswith(_CONFIGURATION)
    is_expected = is_configuration or member.name.lower().endswith(PICKLE_SUFFIXES)
    if (
        member.is_compressed
        and not is_expected
        and _is_harmless(inflate_head(inner.head(), HEAD_NBYTES), member.nbytes)
    ):
        return
    opened = _opened(inner, member, log)
    scan(opened)
    if is_configuration:
        scan_keras_config(opened, log)


def _is_harmless(head: bytes, nbytes: int) -> bool:
    """Say whether the start of the contents rules out pickles."""
    is_enough = len(head) == min(nbytes, HEAD_NBYTES)
    return is_enough and not forms_of(head, nbytes) and compression_of(head) is None
