"""Pickles that follow each other, and whether bytes are pickles at all.

Protocols 0 and 1 have no signature, so any bytes may be a pickle to a reader that is told to read one. What matters
is what that reader would do. Most bytes make it fail before it has imported anything: these are not pickles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorkeep.formats.pickles.audit._audit import Audit, audit_pickle
from tensorkeep.formats.pickles.machine import OPCODES

_MAX_PICKLES: Final = 100_000
_N_LEGACY_PICKLES: Final = 5
_HIGHEST_PROTOCOL: Final = 5
_OTHERS: Final = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""What `numpy.load` reads besides pickles, if it is called again after one."""

Row = Sequence[tuple[int, Audit]]
"""Start and audit of pickles that follow each other."""


def audit_row(data: bytes) -> Row:
    """Audit pickles until something else follows, or until the last pickle of a legacy file of torch."""
    start = 0
    row: list[tuple[int, Audit]] = []
    while len(row) < _MAX_PICKLES:
        audit = audit_pickle(data, start)
        is_other = audit.is_broken or (audit.error is not None and audit.stop is None)
        if row and is_other and audit.is_harmless and not declares_protocol(data, start):
            break
        row.append((start, audit))
        if audit.stop is None or audit.stop == len(data) or is_legacy(row):
            break
        start = audit.stop
    return row


def is_legacy(row: Row) -> bool:
    """Say whether the pickles are those of a legacy file of torch; storages follow them."""
    return len(row) == _N_LEGACY_PICKLES and row[0][1].begins_legacy


def begins_like_a_pickle(data: bytes, *, is_whole: bool = False) -> bool:
    """Say whether bytes, or more bytes that begin with them, are pickles."""
    if not data or data[0] not in OPCODES:
        return False
    return declares_protocol(data) or are_pickles(data, audit_row(data), is_whole=is_whole)


def are_pickles(data: bytes, row: Row, *, is_whole: bool) -> bool:
    """Say whether bytes are pickles, or may be if more follow.

    They are if they declare a protocol, if there is nothing but pickles, or if a reader that takes them for pickles
    may import something.
    """
    audits = [audit for _, audit in row]
    if declares_protocol(data) or not all(audit.is_harmless for audit in audits):
        return True
    if not is_whole and (audits[-1].stop == len(data) or any(audit.is_cut for audit in audits)):
        return True
    stop = None if audits[-1].is_broken else audits[-1].stop
    return stop is not None and (stop == len(data) or data.startswith(_OTHERS, stop))


def declares_protocol(data: bytes, start: int = 0) -> bool:
    """Say whether bytes begin like a pickle of protocol 2 or later."""
    beginning = data[start : start + 3]
    return (
        len(beginning) == 3 and beginning[0] == 0x80 and beginning[1] <= _HIGHEST_PROTOCOL and beginning[2] in OPCODES
    )
