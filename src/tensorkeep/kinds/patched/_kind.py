"""The kind of checkpoints that are kept as another one and patches."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from tensorkeep.deltas import DOCUMENT_NAME
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError
from tensorkeep.kinds.base import Checks, Files, Finding, Kind, OpenOptions, Place
from tensorkeep.kinds.patched._checkpoint import open_patched, read_document
from tensorkeep.kinds.safetensors import SAFETENSORS
from tensorkeep.transport import join, split


def _find(place: Place) -> str | None:
    """Return the directory; on a server that lists nothing, only the file that names the others says what it is."""
    if place.path is None:
        return None
    if place.is_directory:
        return place.path if DOCUMENT_NAME in place.names else None
    directory, name = split(place.path)
    return directory if name == DOCUMENT_NAME else None


def _check(directory: str, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    """Return what can be checked; damage that keeps it from being opened is a finding."""
    try:
        return opened.enter_context(open_patched(directory, options)).checks(names)
    except (FormatError, IntegrityError, SourceMissingError) as error:
        file = (error.path or directory).removeprefix(directory).strip("/\\") or DOCUMENT_NAME
        is_missing = isinstance(error, SourceMissingError)
        finding = Finding("missing" if is_missing else "header", error.message, file, error.tensor, found=error.found)
        return Checks(findings=[finding])


def _files(directory: str) -> Files | None:
    """Return all files; the one that names the others is the last."""
    document = read_document(directory)
    base = SAFETENSORS.files(Place(join(directory, document.base))) if SAFETENSORS.files else None
    if base is None or base.index is None:
        return None
    with open_patched(directory, OpenOptions(backend="pread")) as opened:
        names = (f"{document.base}/{base.index}", *opened.sources, DOCUMENT_NAME)
    return Files(directory, split(directory.rstrip("/"))[1], names, opens_alone=False)


PATCHED = Kind("a checkpoint with patches", _find, open_patched, check=_check, files=_files, verifies_reads=True)
