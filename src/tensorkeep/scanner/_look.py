"""One file, looked through for pickles: by what it is, whatever its name, and archives within archives too.

A file can be several things at once, and every reader takes it for what that reader looks for. So it is looked at as
everything that it may be taken for.
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
from tensorkeep.scanner._look_at_pickles import look_at_array, look_at_pickles, look_at_torch_tar
from tensorkeep.scanner._look_at_zip import look_at_zip
from tensorkeep.scanner._report import SEVERITIES, ScannedFile
from tensorkeep.scanner._tar_members import list_tar
from tensorkeep.transport import ByteRange, ByteSource

_ARCHIVES: Final = {"zip archive", "tar archive"}
_MAX_DEPTH: Final = 4
"""Archives within each other that are opened."""

_EXPECTED_SUFFIXES: Final = (*PICKLE_SUFFIXES, ".npz", ".nemo", ".tar")
"""Names of files that hold pickles; one that does not is reported, since it was meant to."""

_TORCH_TAR: Final = {"sys_info", "pickle", "storages", "tensors"}
_MAX_ZEROS: Final = 2**20
"""Bytes of zeros at the end of a tar archive; it is filled to a multiple of 10 KiB, or of more."""


def look_through(source: ByteSource, *, is_chosen: bool, spans: Sequence[ByteRange] = ()) -> ScannedFile | None:
    """Look one file through."""
    log = FindingLog()
    whole = Content(source, ByteRange(0, source.nbytes))
    with log.noting_errors(whole):
        if spans:
            _look_at_parts(whole, spans, log)
        else:
            _look(whole, log)
    if not log.form and not log.findings:
        if not is_chosen and not source.name.lower().endswith(_EXPECTED_SUFFIXES):
            return None
        what = sniff(whole.read(min(whole.nbytes, SNIFF_NBYTES)))
        log.add("unreadable", f"it is {what.what}" if what else "it is nothing that is known here", whole)
    findings = sorted(log.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return ScannedFile(
        source.name, log.form or "unknown form", log.n_pickles, tuple(findings), tuple(sorted(log.known_names))
    )


def _look_at_parts(whole: Content, spans: Sequence[ByteRange], log: FindingLog) -> None:
    """Look at the parts that a file is said to have, and at all of it for what other readers take it for.

    What is said comes from another file, which nobody has to trust: it must not lead away from anything.
    """
    stop = 0
    is_whole = True
    for span in sorted(spans, key=lambda span: (span.start, span.stop)):
        if span.start < stop or span.stop > whole.nbytes:
            log.add("unreadable", "parts that `.metadata` tells of overlap, or are not in the file", whole)
            break
        is_whole = is_whole and span.start == stop
        part = msgspec.structs.replace(whole, span=span)
        with log.noting_errors(part):
            _look(part, log)
        stop = span.stop
    if not is_whole or stop != whole.nbytes:
        log.add("suspicious", "it has bytes that `.metadata` does not tell of", whole)
    again = FindingLog()
    with log.noting_errors(whole):
        _look(whole, again)
    is_zip = forms_of(whole.head(), whole.nbytes) == ["zip archive"]  # then all parts but the last are before it
    log.findings |= {finding: None for finding in again.findings if finding.name is not None or not is_zip}


def _look(content: Content, log: FindingLog) -> None:
    """Look at bytes as all that they may be taken for."""
    before = log.n_pickles, len(log.findings)
    head = content.head()
    forms = forms_of(head, content.nbytes)
    for form in forms:
        with log.noting_errors(content):
            _look_as(form, content, log)
    compression = compression_of(head)
    if compression is not None:
        log.add("unreadable", f"it is {compression}", content)
    is_unknown = not set(forms) - {"pickle"} and (log.n_pickles, len(log.findings)) == before
    if is_unknown and content.place and content.nbytes and content.name.lower().endswith(PICKLE_SUFFIXES):
        log.add("unreadable", "it is named like a pickle, and is nothing that is known here", content)
    if not _ARCHIVES.intersection(forms):
        _look_behind(content, log)


def _look_behind(content: Content, log: FindingLog) -> None:
    """Look for a zip archive at the end of something else."""
    if content.ends_like_a_zip():
        with log.noting_errors(content):
            look_at_zip(content, log, lambda inner: _look(inner, log), is_behind=True)


def _look_as(form: Form, content: Content, log: FindingLog) -> None:
    if len(content.place) >= _MAX_DEPTH and form in _ARCHIVES:
        log.add("unreadable", f"more than {_MAX_DEPTH} archives in each other", content)
    elif form == "zip archive":
        look_at_zip(content, log, lambda inner: _look(inner, log))
    elif form == "tar archive":
        _look_at_tar(content, log)
    elif form == "pickle":
        look_at_pickles(content, log)
    elif form == "NumPy array":
        look_at_array(content, log)
    else:
        _look_at_safetensors(content, log)


def _look_at_tar(content: Content, log: FindingLog) -> None:
    listing = list_tar(content.source, content.span)
    is_torch = not content.place and {name for name, _ in listing.members} == _TORCH_TAR
    if is_torch and look_at_torch_tar(content, log):
        return
    log.name_form("tar archive", content)
    for place, problem in listing.problems:
        log.add("unreadable", problem, content, place - content.span.start)
    for name, span in listing.members:
        _look(msgspec.structs.replace(content, span=span, place=(*content.place, name)), log)
    stop = listing.stop - content.span.start
    rest = content.part(stop)
    if rest.nbytes > _MAX_ZEROS or any(rest.read(rest.nbytes)):
        log.add("unknown", f"{rest.nbytes:,} bytes follow the end of the tar archive", content, stop)
        _look_behind(rest, log)


def _look_at_safetensors(content: Content, log: FindingLog) -> None:
    """Check the header of a file of tensors, which holds no code; of a member nothing is asked."""
    log.name_form("safetensors", content)
    if not content.place:
        try:
            read_header(content.source)
        except (FormatError, RefusedError) as error:
            log.add("unreadable", error.message, content)


def checkpoint_spans(source: ByteSource) -> dict[str, list[ByteRange]]:
    """Return where the parts of a distributed checkpoint lie, as its `.metadata` says."""
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
    """Give the attributes of each object of a class, in containers and attributes of objects."""
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
