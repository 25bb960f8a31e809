"""Zip archives: those of torch, of NumPy, of Keras, and any others; every member is looked at, whatever its name."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from tensorkeep.errors import ArchiveError, FormatError
from tensorkeep.formats.archives import Archive, ArchiveFault, Member, examine_archive, read_member
from tensorkeep.formats.pickles import PICKLE_SUFFIXES, Audit
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import HEAD_NBYTES, Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import compression_of, forms_of
from tensorkeep.scanner._look_at_keras import look_at_keras
from tensorkeep.scanner._look_at_pickles import look_at_pickles
from tensorkeep.transport import ByteRange, MemorySource

Look = Callable[[Content], None]
"""Looks at the content of a member."""

_CONFIGURATION: Final = "config.json"
_UNREAD: Final = "it is encrypted, compressed in a way that is not known here, or not where it is said to be"


def look_at_zip(content: Content, log: FindingLog, look: Look, *, is_behind: bool = False) -> None:
    """Look through an archive."""
    try:
        archive, faults = examine_archive(content.source, content.span)
    except FormatError:
        if is_behind:
            return
        log.name_form("zip archive", content)
        raise
    if is_behind:
        log.add("suspicious", "it is a zip archive too, for readers that begin at its end", content)
    raw: set[str] = set()
    if any(name.casefold() == "data.pkl" for name in archive.members):
        log.name_form("TorchScript archive" if "constants.pkl" in archive.members else "PyTorch zip archive", content)
        for fault in () if is_behind else faults:
            log.add("unreadable", _fault_text(fault), content)
        raw = _look_at_torch_pickles(content, archive, log)
    log.name_form("zip archive", content)
    for name in archive.unread:
        log.add("unreadable", f"member {name}: {_UNREAD}", content)
    for member in [*(member for name, member in archive.members.items() if name not in raw), *archive.doubles]:
        inner = _inner(content, member)
        with log.noting_errors(inner):
            _look_at_member(inner, member, log, look)


def _fault_text(fault: ArchiveFault) -> str:
    text = f"member {fault.member}: {fault.message}" if fault.member else fault.message
    facts = [f"{label} {fact}" for label, fact in (("expected", fault.expected), ("found", fault.found)) if fact]
    return f"{text}: {', '.join(facts)}" if facts else text


def _look_at_torch_pickles(content: Content, archive: Archive, log: FindingLog) -> set[str]:
    """Look through the pickles that torch itself reads; return their names, and those of the storages they name."""
    done: set[str] = set()
    folders = {"data.pkl": "data", "constants.pkl": "constants"}
    for name, member in archive.members.items():
        folder = folders.get(name.casefold())  # torch finds members without regard to case
        if folder is not None:
            inner = _inner(content, member)
            audits: list[Audit] = []
            with log.noting_errors(inner):
                audits = look_at_pickles(_opened(inner, member, log), log, is_certain=True)
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
    """Return the bytes of a member: where they are stored, or a decompressed copy."""
    if not member.is_compressed:
        return inner
    log.spend(member.nbytes)
    data = read_member(inner.source, member, MAX_PICKLE_NBYTES)
    source = MemorySource(data, inner.source.name)
    return Content(source, ByteRange(0, len(data)), inner.place, is_copy=True)


def _look_at_member(inner: Content, member: Member, log: FindingLog, look: Callable[[Content], None]) -> None:
    """Look at a member; of a compressed one, all is decompressed only if its beginning says that it must be."""
    is_configuration = member.name.endswith(_CONFIGURATION)
    is_expected = is_configuration or member.name.lower().endswith(PICKLE_SUFFIXES)
    if member.is_compressed and not is_expected and _is_nothing(_inflated_head(inner), member.nbytes):
        return
    opened = _opened(inner, member, log)
    look(opened)
    if is_configuration:
        look_at_keras(opened, log)


def _inflated_head(inner: Content) -> bytes:
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(inner.head(), HEAD_NBYTES)
    except zlib.error as error:
        raise ArchiveError("the member cannot be inflated", found=str(error)) from None


def _is_nothing(head: bytes, nbytes: int) -> bool:
    """Say whether contents are nothing that could hold pickles, as far as their beginning, if there is one, tells."""
    is_enough = len(head) == min(nbytes, HEAD_NBYTES)
    return is_enough and not forms_of(head, nbytes) and compression_of(head) is None
