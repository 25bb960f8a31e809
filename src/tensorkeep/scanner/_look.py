"""One file, looked through for pickles: by what it is, whatever its name, and archives within archives too.

A file can be several things at once, and every reader takes it for what that reader looks for. So it is looked at as
everything that it may be taken for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, RefusedError
from tensorkeep.formats import SNIFF_NBYTES, sniff
from tensorkeep.formats.pickles import Unknown, audit_pickle
from tensorkeep.formats.safetensors import read_header
from tensorkeep.limits import MAX_PICKLE_NBYTES
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import Form, forms_of
from tensorkeep.scanner._look_at_pickles import look_at_array, look_at_pickles, look_at_torch_tar
from tensorkeep.scanner._look_at_zip import ends_like_a_zip, look_at_zip
from tensorkeep.scanner._report import ScannedFile, Severity
from tensorkeep.scanner._tar_members import tar_members
from tensorkeep.transport import ByteRange, ByteSource

__all__ = ["checkpoint_spans", "look_through"]

_ARCHIVES: Final = {"zip archive", "tar archive"}
_MAX_DEPTH: Final = 4
"""Archives within each other that are opened."""

_EXPECTED_SUFFIXES: Final = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".bin", ".joblib", ".dill", ".npz", ".nemo")
"""Names of files that hold pickles; one that does not is reported, since it was meant to."""

_SEVERITIES: Final[tuple[Severity, ...]] = ("dangerous", "unreadable", "suspicious", "unknown")
_TORCH_TAR: Final = {"sys_info", "pickle", "storages", "tensors"}


def look_through(source: ByteSource, *, is_chosen: bool, spans: Sequence[ByteRange] = ()) -> ScannedFile | None:
    """Look one file through.

    Args:
        source: The file.
        is_chosen: Whether somebody asked for this file, who must be told if it is nothing that is known.
        spans: Where archives lie in it, half-open, if it is a file of a distributed checkpoint.

    Returns:
        What it holds; None where it is nothing that pickles or tensors are in, and was not asked for.
    """
    log = FindingLog()
    whole = Content(source, ByteRange(0, source.nbytes))
    with log.noting_errors(whole):
        for span in spans:
            _look(Content(source, ByteRange(min(span.start, source.nbytes), min(span.stop, source.nbytes))), log)
        if not spans:
            _look(whole, log)
    if not log.form and not log.findings:
        if not is_chosen and not source.name.lower().endswith(_EXPECTED_SUFFIXES):
            return None
        what = sniff(whole.read(min(whole.nbytes, SNIFF_NBYTES)))
        log.add("unreadable", f"it is {what.what}" if what else "it is nothing that is known here", whole)
    findings = sorted(log.findings, key=lambda finding: _SEVERITIES.index(finding.severity))
    return ScannedFile(
        source.name, log.form or "unknown form", log.n_pickles, tuple(findings), tuple(sorted(log.known_names))
    )


def _look(content: Content, log: FindingLog) -> bool:
    """Look at bytes as all that they may be taken for; say whether they are any of it."""
    is_anything = False
    forms = forms_of(content.head(), content.nbytes)
    for form in forms:
        with log.noting_errors(content):
            is_anything = _look_as(form, content, log) or is_anything
    if not _ARCHIVES.intersection(forms) and ends_like_a_zip(content):
        with log.noting_errors(content):
            is_anything = look_at_zip(content, log, lambda inner: _look(inner, log), is_behind=True) or is_anything
    return is_anything


def _look_as(form: Form, content: Content, log: FindingLog) -> bool:
    if len(content.place) >= _MAX_DEPTH and form in _ARCHIVES:
        log.add("unreadable", f"more than {_MAX_DEPTH} archives in each other", content)
        return True
    if form == "zip archive":
        return look_at_zip(content, log, lambda inner: _look(inner, log))
    if form == "tar archive":
        return _look_at_tar(content, log)
    if form == "pickle":
        return bool(look_at_pickles(content, log))
    if form == "NumPy array":
        look_at_array(content, content.head(), log)
        return True
    return _look_at_safetensors(content, log)


def _look_at_tar(content: Content, log: FindingLog) -> bool:
    members = list(tar_members(content.source, content.span))
    if not content.place and {name for name, _ in members} == _TORCH_TAR:
        look_at_torch_tar(content, log)
        return True
    log.name_form("tar archive", content)
    for name, span in members:
        _look(msgspec.structs.replace(content, span=span, place=(*content.place, name)), log)
    return True


def _look_at_safetensors(content: Content, log: FindingLog) -> bool:
    """Check the header of a file of tensors, which holds no code; of a member nothing is asked."""
    log.name_form("safetensors", content)
    if not content.place:
        try:
            read_header(content.source)
        except (FormatError, RefusedError) as error:
            log.add("unreadable", error.message, content)
    return True


def checkpoint_spans(source: ByteSource) -> dict[str, list[ByteRange]]:
    """Return where the parts of a distributed checkpoint lie, as its `.metadata` says.

    Args:
        source: The file of that name.

    Returns:
        File name to ranges of bytes, half-open; empty where it does not say.

    Raises:
        TransportError: If it cannot be read.
    """
    spans: dict[str, list[ByteRange]] = {}
    if source.nbytes > MAX_PICKLE_NBYTES:
        return spans
    for state in _states("_StorageInfo", audit_pickle(bytes(source.read(ByteRange(0, source.nbytes)))).value):
        path, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
        if type(path) is str and type(offset) is int and type(length) is int and offset >= 0 <= length:
            spans.setdefault(path, []).append(ByteRange(offset, offset + length))
    return spans


def _states(name: str, value: Any) -> Iterator[dict[str, Any]]:
    """Give the attributes of each object of a class, in containers and attributes of objects."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if type(node) is dict:
            waiting.extend(node.values())
        elif isinstance(node, Unknown) and type(node.state) is dict:
            waiting.append(node.state)
            if node.name == name:
                yield node.state
