"""Zip archives: those of torch, of NumPy, of Keras, and any others; every member is looked at, whatever its name."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Final

from tensorkeep.errors import ArchiveError, FormatError
from tensorkeep.formats.archives import Archive, ArchiveFault, Member, examine_archive, read_member
from tensorkeep.formats.pickles import Audit
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import forms_of
from tensorkeep.scanner._look_at_pickles import look_at_pickles
from tensorkeep.transport import ByteRange, MemorySource

__all__ = ["ends_like_a_zip", "look_at_zip"]

Look = Callable[[Content], bool]
"""Looks at the content of a member; says whether it is anything that could hold pickles."""

_STORED: Final = 0
_DEFLATED: Final = 8
_END_SIGNATURE: Final = b"PK\x05\x06"
_TAIL_NBYTES: Final = 2**16 + 22
"""Bytes from the end in which the end record of a zip archive stands."""

_HEAD_NBYTES: Final = 2**16
_CONFIGURATION: Final = "config.json"
_find_lambda = re.compile(rb'"class_name"\s*:\s*"Lambda"').search


def ends_like_a_zip(content: Content) -> bool:
    """Say whether a zip archive may stand at the end of something else.

    Args:
        content: The bytes.
    """
    return _END_SIGNATURE in content.tail(_TAIL_NBYTES)


def look_at_zip(content: Content, log: FindingLog, look: Look, *, is_behind: bool = False) -> bool:
    """Look through an archive.

    Args:
        content: The archive.
        log: Takes what is found.
        look: What looks at members.
        is_behind: Whether it stands behind something else, which most readers take the file for.

    Returns:
        Whether it is one.

    Raises:
        FormatError: If it is none, though it begins like one.
        RefusedError: If it is over a bound.
    """
    try:
        archive, faults = examine_archive(content.source, content.span)
    except FormatError:
        if is_behind:
            return False
        log.name_form("zip archive", content)
        raise
    if is_behind:
        log.add("suspicious", "it is a zip archive too, for readers that begin at its end", content)
    raw: set[str] = set()
    if "data.pkl" in archive.members:
        log.name_form("TorchScript archive" if "constants.pkl" in archive.members else "PyTorch zip archive", content)
        for fault in () if is_behind else faults:
            log.add("unreadable", _fault_text(fault), content)
        raw = _look_at_torch_pickles(content, archive, log)
    log.name_form("zip archive", content)
    doubles = [fault.double for fault in faults if fault.double is not None]
    for member in [*(member for name, member in archive.members.items() if name not in raw), *doubles]:
        inner = _inner(content, member)
        with log.noting_errors(inner):
            _look_at_member(inner, member, log, look)
    return True


def _fault_text(fault: ArchiveFault) -> str:
    text = f"member {fault.member}: {fault.message}" if fault.member else fault.message
    facts = [f"{label} {fact}" for label, fact in (("expected", fault.expected), ("found", fault.found)) if fact]
    return f"{text}: {', '.join(facts)}" if facts else text


def _look_at_torch_pickles(content: Content, archive: Archive, log: FindingLog) -> set[str]:
    """Look through the pickles that torch itself reads; return their names, and those of the storages they name."""
    done: set[str] = set()
    for name, folder in (("data.pkl", "data"), ("constants.pkl", "constants")):
        member = archive.members.get(name)
        if member is not None:
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
    if member.method == _STORED:
        return inner
    log.spend(member.nbytes)
    data = read_member(inner.source, member, MAX_PICKLE_NBYTES)
    source = MemorySource(data, inner.source.name)
    return Content(source, ByteRange(0, len(data)), inner.place, is_copy=True)


def _look_at_member(inner: Content, member: Member, log: FindingLog, look: Look) -> None:
    """Look at a member; of a compressed one, all is decompressed only if its beginning says that it must be."""
    is_configuration = member.name.endswith(_CONFIGURATION)
    if member.method == _DEFLATED and not is_configuration and not forms_of(_inflated_head(inner), member.nbytes):
        return
    opened = _opened(inner, member, log)
    look(opened)
    if is_configuration and _find_lambda(opened.head()):
        log.add("suspicious", "a Lambda layer of Keras is made of Python code that the file carries", opened)


def _inflated_head(inner: Content) -> bytes:
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(inner.head(), _HEAD_NBYTES)
    except zlib.error as error:
        raise ArchiveError("the member cannot be inflated", found=str(error)) from None
