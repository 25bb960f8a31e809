"""Scans one file by its contents, whatever its name, and archives within archives.

A file can have several formats at once, and each program sees the one it looks for. So a file is scanned as every
format it may be taken for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, RefusedError
from tensorkeep.formats import SNIFF_NBYTES, sniff
from tensorkeep.formats.pickles import PICKLE_SUFFIXES, Unknown, audit_pickle
from tensorkeep.formats.safetensors import read_header
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import Form, compression_of, forms_of
from tensorkeep.scanner._report import SEVERITIES, ScannedFile
from tensorkeep.scanner._scan_pickles import scan_array, scan_pickles, scan_torch_tar
from tensorkeep.scanner._scan_zip import scan_zip
from tensorkeep.scanner._tar_members import list_tar
from tensorkeep.transport import ByteRange, ByteSource

_ARCHIVES: Final = {"zip archive", "tar archive"}
_MAX_DEPTH: Final = 4
"""Deepest nesting of archives that is scanned."""

_EXPECTED_SUFFIXES: Final = (*PICKLE_SUFFIXES, ".npz", ".nemo", ".tar")
"""Suffixes of files that contain pickles; such a file is reported if its format is unknown."""

_TORCH_TAR: Final = {"sys_info", "pickle", "storages", "tensors"}
_MAX_ZEROS: Final = 2**20
"""Most bytes of zeros at the end of a tar archive; writers pad to a multiple of 10 KiB or more."""


def scan_file(source: ByteSource, *, is_chosen: bool, spans: Sequence[ByteRange] = ()) -> ScannedFile | None:
    """Scan one file; None if its format is unknown, unless it was chosen by name or has a suffix of pickles."""
    is_expected = is_chosen or source.name.lower().endswith(_EXPECTED_SUFFIXES)
    log = FindingLog(ignores_texts=not is_expected)
    whole = Content(source, ByteRange(0, source.nbytes))
    with log.recording_errors(whole):
        if spans:
            _scan_parts(whole, spans, log)
        else:
            _scan_content(whole, log)
    if not log.form and not log.findings:
        if not is_expected:
            return None
        what = sniff(whole.read(min(whole.nbytes, SNIFF_NBYTES)))
        log.add("unreadable", f"it is {what.what}" if what else "its form is unknown", whole)
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
    again = FindingLog()
    with log.recording_errors(whole):
        _scan_content(whole, again)
    is_zip = forms_of(whole.head(), whole.nbytes) == ["zip archive"]  # a zip reader sees only the last part
    log.findings |= {finding: None for finding in again.findings if finding.name is not None or not is_zip}


def _scan_content(content: Content, log: FindingLog) -> None:
    """Scan bytes as every format they may be taken for."""
    before = log.n_pickles, len(log.findings)
    head = content.head()
    forms = forms_of(head, content.nbytes)
    for form in forms:
        with log.recording_errors(content):
            _scan_as(form, content, log)
    compression = compression_of(head)
    if compression is not None:
        log.add("unreadable", f"it is {compression}", content)
    is_unknown = not set(forms) - {"pickle"} and (log.n_pickles, len(log.findings)) == before
    if is_unknown and content.place and content.nbytes and content.name.lower().endswith(PICKLE_SUFFIXES):
        log.add("unreadable", "it is named like a pickle, but its form is unknown", content)
    if not _ARCHIVES.intersection(forms):
        _scan_end(content, log)


def _scan_end(content: Content, log: FindingLog) -> None:
    """Scan a zip archive at the end of something else."""
    if content.ends_like_a_zip():
        with log.recording_errors(content):
            scan_zip(content, log, lambda inner: _scan_content(inner, log), is_at_end=True)


def _scan_as(form: Form, content: Content, log: FindingLog) -> None:
    if len(content.place) >= _MAX_DEPTH and form in _ARCHIVES:
        log.add("unreadable", f"more than {_MAX_DEPTH} archives within each other", content)
    elif form == "zip archive":
        scan_zip(content, log, lambda inner: _scan_content(inner, log))
    elif form == "tar archive":
        _scan_tar(content, log)
    elif form == "pickle":
        scan_pickles(content, log)
    elif form == "NumPy array":
        scan_array(content, log)
    else:
        _check_safetensors(content, log)


def _scan_tar(content: Content, log: FindingLog) -> None:
    listing = list_tar(content.source, content.span)
    is_torch = not content.place and {name for name, _ in listing.members} == _TORCH_TAR
    if is_torch and scan_torch_tar(content, log):
        return
    log.name_form("tar archive", content)
    for place, problem in listing.problems:
        log.add("unreadable", problem, content, place - content.span.start)
    for name, span in listing.members:
        _scan_content(msgspec.structs.replace(content, span=span, place=(*content.place, name)), log)
    stop = listing.stop - content.span.start
    rest = content.part(stop)
    if rest.nbytes > _MAX_ZEROS or any(rest.read(rest.nbytes)):
        log.add("unknown", f"{rest.nbytes:,} bytes follow the end of the tar archive", content, stop)
        _scan_end(rest, log)


def _check_safetensors(content: Content, log: FindingLog) -> None:
    """Check the header of a file of tensors, which cannot contain code; members of archives are not checked."""
    log.name_form("safetensors", content)
    if not content.place:
        try:
            read_header(content.source)
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
