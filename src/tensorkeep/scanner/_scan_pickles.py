"""Pickles: one or several in a row, legacy files of torch, arrays of objects, tar archives of torch 0.1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.pickles import (
    PICKLE_SUFFIXES,
    Audit,
    audit_pickle,
    audit_tar,
    begins_like_a_pickle,
    check_legacy,
)
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import HEAD_NBYTES, Content
from tensorkeep.scanner._findings import FindingLog, error_text

_SUFFIXES: Final = (*PICKLE_SUFFIXES, ".p", ".data", ".metadata")
"""With these suffixes, a file that starts like a pickle and is cut off counts as a broken pickle."""

_MAX_PICKLES: Final = 100_000
_N_LEGACY_PICKLES: Final = 5

_FIRST_NBYTES: Final = 2**22
_GROWTH: Final = 8
"""Bytes of the first read, and the factor by which each further read of a longer pickle grows."""

_NUMBERS: Final = rb"""['"][<>=|]?(?:[?biufcSUaV][0-9]*|[mM]8(?:\[[0-9a-zA-Z/]*\])?)['"]"""
_FIELD: Final = rb"""\(['"][^'"\\]*['"],""" + _NUMBERS + rb"""(?:,\([0-9L,]*\))?\)"""
_ENTRY: Final = (
    rb"""['"]descr['"]:(?:"""
    + _NUMBERS
    + rb"""|\[(?:"""
    + _FIELD
    + rb""",?)*\])|['"]fortran_order['"]:(?:True|False)|['"]shape['"]:\([0-9L,]*\)"""
)
_is_of_numbers = re.compile(rb"\{(?:(?:" + _ENTRY + rb"),?)*\}").fullmatch
"""Matches the header of an array of numbers, without white space. Anything else may be read as objects."""


def scan_pickles(content: Content, log: FindingLog, *, is_certain: bool = False) -> list[Audit]:
    """Scan consecutive pickles."""
    audits = _audits(content)
    first = audits[0][1]
    if not (is_certain or _is_called_one(content) or _is_one(first, content)):
        return []
    for start, audit in audits:
        log.n_pickles += 1
        log.add_mentions(audit.mentions, content)
        if audit.error is not None:
            log.add("unreadable", audit.error, content, start)
    log.name_form("PyTorch legacy stream" if first.begins_legacy else "pickle", content)
    stop = audits[-1][1].stop
    if first.begins_legacy and len(audits) == _N_LEGACY_PICKLES:
        _check_legacy(content, log)
    elif stop is not None and stop < content.nbytes:
        log.add("unknown", f"{content.nbytes - stop:,} bytes follow the end of the pickle", content, stop)
    return [audit for _, audit in audits]


def _audits(content: Content) -> list[tuple[int, Audit]]:
    """Return start and audit of each pickle, reading little beyond them: gigabytes may follow."""
    n_all = min(content.nbytes, MAX_PICKLE_NBYTES)
    nbytes = _FIRST_NBYTES
    while True:
        data = content.read(min(n_all, nbytes))
        audits = list(_audits_of(data))
        last = audits[-1][1]
        if len(data) == n_all or not (last.is_cut or last.stop == len(data)):
            return audits
        nbytes *= _GROWTH


def _audits_of(data: bytes) -> Iterator[tuple[int, Audit]]:
    """Audit pickles until something else follows, or until the last pickle of a legacy file of torch."""
    start = 0
    first: Audit | None = None
    for n_pickles in range(1, _MAX_PICKLES):
        audit = audit_pickle(data, start)
        yield start, audit
        first = audit if first is None else first
        if audit.stop is None or (first.begins_legacy and n_pickles == _N_LEGACY_PICKLES):
            return
        start = audit.stop
        beginning = data[start : start + HEAD_NBYTES]
        if not first.begins_legacy and not begins_like_a_pickle(
            beginning, is_whole=start + len(beginning) == len(data)
        ):
            return


def _is_one(first: Audit, content: Content) -> bool:
    """Say whether content that starts like a pickle is one: it runs to its end, or names something before that."""
    if first.error is None or (first.mentions and content.read(1) == b"\x80"):
        return True
    return any(mention.danger is not None or "call" in mention.deeds for mention in first.mentions)


def _is_called_one(content: Content) -> bool:
    return content.name.lower().endswith(_SUFFIXES)


def _check_legacy(content: Content, log: FindingLog) -> None:
    """Check the storages that follow the pickles of a legacy file."""
    if content.place:
        return
    try:
        check_legacy(content.source)
    except TensorkeepError as error:
        log.add("unreadable", error_text(error), content)


def scan_array(content: Content, log: FindingLog) -> None:
    """Scan a `.npy` file: an array of objects is a pickle after the header."""
    log.name_form("NumPy array", content)
    head = content.head()
    begin = 10 if head[6:7] == b"\x01" else 12
    start = begin + int.from_bytes(head[8:begin], "little")
    header = b"".join(head[begin:start].split())
    if start > len(head) or not _is_of_numbers(header):
        scan_pickles(content.part(min(start, content.nbytes)), log, is_certain=True)


def scan_torch_tar(content: Content, log: FindingLog) -> bool:
    """Scan a tar archive of torch 0.1; return whether it is one."""
    log.name_form("PyTorch tar archive", content)
    audit = audit_tar(content.source)
    log.n_pickles += 1
    log.add_mentions(audit.mentions, content)
    if audit.error is not None:
        log.add("unreadable", audit.error, content)
    return audit.error is None
