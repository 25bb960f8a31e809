"""Scans one file by its contents, whatever its name, and archives within archives.

A file can have several formats at once, and each program sees the one it looks for. So a file is scanned as every
format it may be taken for.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, RefusedError
from tensorkeep.formats import SNIFF_NBYTES, sniff
from tensorkeep.formats.pickles import PICKLE_SUFFIXES, Unknown, audit_pickle
from tensorkeep.formats.safetensors import read_header
from tensorkeep.kinds import OpenOptions, Place
from tensorkeep.kinds.registry import find_tensors
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._compression import report_compression
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import Form, forms_of
from tensorkeep.scanner._report import SEVERITIES, ScannedFile
from tensorkeep.scanner._scan_arrays import scan_arrays
from tensorkeep.scanner._scan_pickles import scan_pickles
from tensorkeep.scanner._scan_tar import scan_tar
from tensorkeep.scanner._scan_zip import scan_zip
from tensorkeep.scanner.models import scan_models
from tensorkeep.transport import ByteRange, ByteSource

_ARCHIVES: Final = {"zip archive", "tar archive"}
_MAX_DEPTH: Final = 4
"""Deepest nesting of archives that is scanned."""

_EXPECTED_SUFFIXES: Final = (*PICKLE_SUFFIXES, ".npy", ".npz", ".nemo", ".tar", ".keras", ".h5", ".hdf5")
"""Suffixes of files that contain pickles or other programs; such a file is reported if its format is unknown."""


def scan_file(
    source: ByteSource, *, is_chosen: bool, spans: Sequence[ByteRange] = (), modules: Collection[str] = ()
) -> ScannedFile | None:
    """Scan one file; None if its format is unknown, unless it was chosen by name or has a suffix of pickles.

    `modules` are those whose code was found in the same directories.
    """
    is_expected = is_chosen or source.name.lower().endswith(_EXPECTED_SUFFIXES)
    log = FindingLog(source.nbytes, ignores_texts=not is_expected, modules=modules)
    whole = Content(source, ByteRange(0, source.nbytes))
    with log.recording_errors(whole):
        if spans:
            _scan_parts(whole, spans, log)
        else:
            _scan_content(whole, log)
    if not log.form and not log.findings:
        if not is_expected:
            return None
        _report_unknown(whole, log)
    findings = sorted(log.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return ScannedFile(
        source.name, log.form or "unknown form", log.n_pickles, tuple(findings), tuple(sorted(log.known_names))
    )


def _scan_parts(whole: Content, spans: Sequence[ByteRange], log: FindingLog) -> None:
    """Scan the declared parts of a file, and the whole file as other programs would see it.

    The declaration comes from another file, which may be forged, so it must not hide any bytes.
    """
    stop = 0
    is_whole = True
    for span in sorted(spans, key=lambda span: (span.start, span.stop)):
        if span.start < stop or span.stop > whole.nbytes:
            log.add("unreadable", "parts declared in `.metadata` overlap or are not in the file", whole)
            break
        is_whole = is_whole and span.start == stop
        part = msgspec.structs.replace(whole, span=span)
        with log.recording_errors(part):
            _scan_content(part, log)
        stop = span.stop
    if not is_whole or stop != whole.nbytes:
        log.add("suspicious", "it has bytes that are not declared in `.metadata`", whole)
    again = FindingLog(whole.nbytes)
    with log.recording_errors(whole):
        _scan_content(whole, again)
    is_zip = forms_of(whole.head(), whole.nbytes) == ["zip archive"]  # a zip reader sees only the last part
    log.findings |= {finding: None for finding in again.findings if finding.name is not None or not is_zip}


def _report_unknown(content: Content, log: FindingLog) -> None:
    what = sniff(content.read(min(content.nbytes, SNIFF_NBYTES)))
    log.add("unreadable", f"it is {what.what}" if what else "its form is unknown", content)


def _scan_content(content: Content, log: FindingLog) -> None:
    """Scan a file, or a member of an archive, by the same rules."""
    before = log.n_pickles, len(log.findings)
    forms = _scan_bytes(content, log)
    is_known = scan_models(content, log)
    if not is_known:
        report_compression(content, log)
    is_unknown = not is_known and not set(forms) - {"pickle"} and (log.n_pickles, len(log.findings)) == before
    if is_unknown and not _is_of_tensors(content, log) and content.name.lower().endswith(_EXPECTED_SUFFIXES):
        _report_unknown(content, log)


def _is_of_tensors(content: Content, log: FindingLog) -> bool:
    """Say whether a kind that holds only tensors claims the content, and check that it can be opened."""
    place = Place.of(content.alone())
    kind = find_tensors(place)
    if kind is None:
        return False
    log.name_form(kind.name.partition(" ")[2], content)
    with log.recording_errors(content):
        for name, unknown in kind.open(place, OpenOptions()).unknowns.items():
            log.add("unknown", f"{name} is not known to be data: {unknown}", content)
    return True


def _scan_bytes(content: Content, log: FindingLog) -> list[Form]:
    """Scan bytes as every format they may be taken for."""
    if not content.nbytes:
        return []
    head = content.head()
    forms = forms_of(head, content.nbytes)
    for form in forms:
        with log.recording_errors(content):
            _scan_as(form, content, log, is_only=len(forms) == 1)
    if "zip archive" not in forms and content.ends_like_a_zip():
        with log.recording_errors(content):
            _scan_zip(content, log, is_at_end=True)
    return forms


def _scan_as(form: Form, content: Content, log: FindingLog, *, is_only: bool) -> None:
    if form == "zip archive":
        _scan_zip(content, log)
    elif form == "tar archive":
        if not _is_too_deep(content, log):
            scan_tar(content, log, lambda inner: _scan_content(inner, log))
    elif form == "pickle":
        scan_pickles(content, log, may_be_text=is_only)
    elif form == "NumPy array":
        _scan_arrays(content, log)
    elif form == "safetensors":
        _check_safetensors(content, log)


def _scan_zip(content: Content, log: FindingLog, *, is_at_end: bool = False) -> None:
    if not _is_too_deep(content, log):
        scan_zip(content, log, lambda inner: _scan_content(inner, log), is_at_end=is_at_end)


def _is_too_deep(content: Content, log: FindingLog) -> bool:
    is_too_deep = len(content.place) >= _MAX_DEPTH
    if is_too_deep:
        log.add("unreadable", f"more than {_MAX_DEPTH} archives within each other", content)
    return is_too_deep


def _scan_arrays(content: Content, log: FindingLog) -> None:
    rest = scan_arrays(content, log)
    if rest.nbytes:
        log.add("unknown", f"{rest.nbytes:,} bytes follow the array", content, content.nbytes - rest.nbytes)
        _scan_bytes(rest, log)


def _check_safetensors(content: Content, log: FindingLog) -> None:
    """Check the header of a file of tensors, which cannot contain code."""
    log.name_form("safetensors", content)
    try:
        read_header(content.alone())
    except (FormatError, RefusedError) as error:
        log.add("unreadable", error.message, content)


def checkpoint_spans(source: ByteSource) -> dict[str, list[ByteRange]]:
    """Return the parts of the files of a distributed checkpoint, as declared in its `.metadata`."""
    spans: dict[str, list[ByteRange]] = {}
    if source.nbytes > MAX_PICKLE_NBYTES:
        return spans
    for state in _states("_StorageInfo", audit_pickle(bytes(source.read(ByteRange(0, source.nbytes)))).value):
        path, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
        if type(path) is not str or type(offset) is not int or type(length) is not int:
            continue
        if os.path.basename(path) == path and offset >= 0 < length:
            spans.setdefault(path, []).append(ByteRange(offset, offset + length))
    return spans


def _states(name: str, value: Any) -> Iterator[dict[str, Any]]:
    """Yield the attributes of every instance of a class, in nested containers and attributes."""
    waiting = [value]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) is dict:
            waiting.extend(node.values())
        elif isinstance(node, Unknown) and type(node.state) is dict:
            waiting.append(node.state)
            if node.name == name:
                yield node.state
