"""Pickles: one or several in a row, legacy files of torch, tar archives of torch 0.1."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.pickles import (
    PICKLE_SUFFIXES,
    Audit,
    Row,
    are_pickles,
    audit_outline,
    audit_row,
    audit_tar,
    check_legacy,
    declares_protocol,
    has_outline,
    is_legacy,
)
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog, error_text

_SUFFIXES: Final = (*PICKLE_SUFFIXES, ".p", ".data", ".metadata")
"""With these suffixes, a file that starts like a pickle and is cut off counts as a broken pickle."""

_FIRST_NBYTES: Final = 2**22
OUTLINED_FROM_NBYTES: Final = _FIRST_NBYTES
"""Bytes of a pickle from which its large arrays are passed over."""

_GROWTH: Final = 8
"""Bytes of the first read, and the factor by which each further read of a longer pickle grows."""

_NUMBER_NBYTES: Final = 4
"""A tensor of one number, such as the scale of a quantized one: too short to name a module that could do harm."""


def scan_pickles(
    content: Content, log: FindingLog, *, is_certain: bool = False, may_be_text: bool = False
) -> list[Audit]:
    """Scan consecutive pickles; what may be a text is ignored if a reader would only import a module and fail."""
    data, row = _outlined(content) or _audited(content)
    is_certain = is_certain or _is_called_one(content) or declares_protocol(data)
    is_whole = len(data) == content.nbytes
    is_text = not is_certain and is_whole and _only_imports(row)
    is_ignored = is_text and may_be_text and _is_harmless(content, row, log)
    if not is_certain and (is_ignored or not are_pickles(data, row, is_whole=is_whole)):
        return []
    for start, audit in row:
        log.n_pickles += 1
        log.add_mentions(audit.mentions, content)
        if audit.error is not None and not is_text:
            log.add("unreadable", audit.error, content, start)
    log.name_form("PyTorch legacy stream" if row[0][1].begins_legacy else "pickle", content)
    stop = row[-1][1].stop
    if is_legacy(row):
        _check_legacy(content, log)
    elif stop is not None and stop < content.nbytes:
        log.add("unknown", f"{content.nbytes - stop:,} bytes follow the end of the pickle", content, stop)
    return [audit for _, audit in row]


def _outlined(content: Content) -> tuple[bytes, Row] | None:
    """Return the bytes that a pickle begins with, and what it does, if its large arrays can be passed over."""
    source = content.alone()
    if content.nbytes <= OUTLINED_FROM_NBYTES or not has_outline(source):
        return None
    audit = audit_outline(source)
    return None if audit is None else (content.head(), [(0, audit)])


def _audited(content: Content) -> tuple[bytes, Row]:
    """Return the pickles and the bytes they are in, reading little beyond them: gigabytes may follow."""
    n_all = min(content.nbytes, MAX_PICKLE_NBYTES)
    nbytes = _FIRST_NBYTES
    while True:
        data = content.read(min(n_all, nbytes))
        row = audit_row(data)
        if len(data) == n_all or not (row[-1][1].stop == len(data) or any(audit.is_cut for _, audit in row)):
            return data, row
        nbytes *= _GROWTH


def _is_called_one(content: Content) -> bool:
    return content.name.lower().endswith(_SUFFIXES)


def _only_imports(row: Row) -> bool:
    """Say whether every reader fails after no more than imports, as with a text of the lines `cat` and `dog`."""
    (_, audit), *more = row
    deeds = {deed for mention in audit.mentions for deed in mention.deeds}
    return (
        not more and audit.is_broken and deeds == {"import"} and not any(mention.danger for mention in audit.mentions)
    )


def _is_harmless(content: Content, row: Row, log: FindingLog) -> bool:
    """Say whether an import and its failure matter to nobody: it can run only the code of installed modules."""
    if content.place:
        return content.nbytes <= _NUMBER_NBYTES
    imported = {mention.module.partition(".")[0] for _, audit in row for mention in audit.mentions}
    return log.ignores_texts and imported.isdisjoint(log.modules)


def _check_legacy(content: Content, log: FindingLog) -> None:
    """Check the storages that follow the pickles of a legacy file."""
    try:
        check_legacy(content.alone())
    except TensorkeepError as error:
        log.add("unreadable", error_text(error), content)


def scan_torch_tar(content: Content, log: FindingLog) -> bool:
    """Scan a tar archive of torch 0.1; return whether it is one."""
    log.name_form("PyTorch tar archive", content)
    audit = audit_tar(content.alone())
    log.n_pickles += 1
    log.add_mentions(audit.mentions, content)
    if audit.error is not None:
        log.add("unreadable", audit.error, content)
    return audit.error is None
