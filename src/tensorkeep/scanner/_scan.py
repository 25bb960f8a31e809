"""What would the files of a checkpoint run, if they were unpickled? Found out without running any of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.scanner._look import checkpoint_spans, look_through
from tensorkeep.scanner._report import ScanFinding, ScannedFile, ScanReport
from tensorkeep.transport import (
    ByteRange,
    is_directory,
    is_file,
    is_remote,
    join,
    list_names,
    open_source,
    split,
    without_secrets,
)

_METADATA = ".metadata"
"""The file of a distributed checkpoint that says where its tensors lie."""

_PARTS = ".distcp"
_MAX_DEPTH = 8
"""Folders in folders that are looked into on a server."""


def scan(*paths: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> ScanReport:
    """List what the pickles in files, or in all files below directories, would import, call and build.

    Nothing of it is imported, called or built. What a file is, is told by its contents and not by its name: pickles,
    the files of `torch.save` in all forms that there were, NumPy arrays and archives of them, zip and tar archives
    of any kind, and archives in them. Of files of tensors, which can hold no code, only the header is checked.

    Args:
        paths: Files and directories, or their URLs; a directory's where the server lists what it has.
        progress: Called with the bytes of the files that are done, and of all.

    Returns:
        What was found. That something cannot be read is a finding too.

    Raises:
        SourceMissingError: If nothing is there.
    """
    roots = [without_secrets(os.fspath(path)) for path in paths]
    chosen = [(file, is_chosen) for root in roots for file, is_chosen in _files_of(root)]
    sizes = [_size(file) for file, _ in chosen]
    n_all = sum(sizes)
    files: list[ScannedFile] = []
    spans = _Spans()
    n_done = 0
    for (file, is_chosen), size in zip(chosen, sizes, strict=True):
        found = _scanned(file, spans.of(file), is_chosen=is_chosen)
        if found is not None:
            files.append(found)
        n_done += size
        if progress is not None:
            progress(n_done, n_all)
    return ScanReport(tuple(map(str, roots)), tuple(files), len(chosen) - len(files))


class _Spans:
    """Where the parts of distributed checkpoints lie in their files; of one folder at a time."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._spans: dict[str, list[ByteRange]] = {}

    def of(self, file: str) -> Sequence[ByteRange]:
        """Return where parts lie in a file, half-open, as the metadata beside it say; none where there are none."""
        folder, name = split(file)
        if is_remote(file) and not name.endswith(_PARTS):  # to ask for what is mostly missing is a request
            return ()
        if folder != self._folder:
            self._folder, self._spans = folder, _read_spans(join(folder, _METADATA))
        return self._spans.get(name, ())


def _read_spans(metadata: str) -> dict[str, list[ByteRange]]:
    if not is_file(metadata):
        return {}
    try:
        source = open_source(metadata)
        try:
            return checkpoint_spans(source)
        finally:
            source.close()
    except TensorkeepError:  # it is a finding where that file itself is looked through
        return {}


def _files_of(root: str) -> Iterator[tuple[str, bool]]:
    """Give the files that a path stands for, and whether it is a file itself."""
    if is_remote(root):
        yield from (
            ((file, False) for file in _files_at(without_secrets(root)))
            if is_directory(root)
            else [(without_secrets(root), True)]
        )
    elif os.path.isdir(root):
        yield from ((file, False) for file in _files_below(root))
    elif os.path.lexists(root):
        yield root, True
    else:
        raise SourceMissingError("nothing to scan", path=root)


def _files_at(url: str, depth: int = 0) -> Iterator[str]:
    """Give the files below a URL, as far as its server lists them: what is listed and is no file is a folder."""
    names = list_names(url)
    if names is None:
        raise SourceMissingError(
            "the server does not list what it has",
            path=without_secrets(url),
            hint="Give URLs of files",
        )
    for name in names:
        file = join(url, name)
        if is_file(file):
            yield file
        elif depth < _MAX_DEPTH:
            yield from _files_at(file, depth + 1)


def _files_below(root: str) -> Iterator[str]:
    """Give all files below a directory in order of their names, and the folders that are not walked into.

    These are those that cannot be read, and links to folders elsewhere.
    """
    errors: list[OSError] = []
    unread: list[str] = []
    home = os.path.join(os.path.realpath(root), "")
    for folder, folders, names in os.walk(root, onerror=errors.append):
        folders.sort()
        links = [path for name in folders if os.path.islink(path := os.path.join(folder, name))]
        unread += [link for link in links if not os.path.join(os.path.realpath(link), "").startswith(home)]
        for name in sorted(names):
            file = os.path.join(folder, name)
            if os.path.isfile(file):
                yield file
    yield from unread
    yield from (error.filename for error in errors)


def _size(file: str) -> int:
    if is_remote(file):
        return 0
    try:
        return os.path.getsize(file)
    except OSError:
        return 0


def _scanned(file: str, spans: Sequence[ByteRange], *, is_chosen: bool) -> ScannedFile | None:
    if not is_remote(file) and os.path.isdir(file):
        message = "it cannot be read, or is a link to a folder elsewhere: it was not looked into"
        return ScannedFile(file, "folder", 0, (ScanFinding(severity="unreadable", message=message),))
    try:
        source = open_source(file)
        try:
            return look_through(source, is_chosen=is_chosen, spans=spans)
        finally:
            source.close()
    except TensorkeepError as error:
        finding = ScanFinding(severity="unreadable", message=f"{error.message}: {error.found or 'no reason given'}")
        return ScannedFile(file, "unknown form", 0, (finding,))
