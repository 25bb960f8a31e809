"""What would the files of a checkpoint run, if they were unpickled? Found out without running any of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.scanner._look import checkpoint_spans, look_through
from tensorkeep.scanner._report import Report, ScanFinding, ScannedFile
from tensorkeep.transport import ByteRange, open_source

__all__ = ["scan"]

_METADATA = ".metadata"
"""The file of a distributed checkpoint that says where its tensors lie."""


def scan(*paths: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> Report:
    """List what the pickles in files, or in all files below directories, would import, call and build.

    Nothing of it is imported, called or built. What a file is, is told by its contents and not by its name: pickles,
    the files of `torch.save` in all forms that there were, NumPy arrays and archives of them, zip and tar archives
    of any kind, and archives in them. Of files of tensors, which can hold no code, only the header is checked.

    Args:
        paths: Files and directories.
        progress: Called with the bytes of the files that are done, and of all.

    Returns:
        What was found. That something cannot be read is a finding too.

    Raises:
        SourceMissingError: If nothing is there.
    """
    roots = [os.fspath(path) for path in paths]
    chosen = [(file, is_chosen) for root in roots for file, is_chosen in _files_of(root)]
    sizes = [_size(file) for file, _ in chosen]
    files: list[ScannedFile] = []
    spans: dict[str, list[ByteRange]] = {}
    n_done = 0
    for (file, is_chosen), size in zip(chosen, sizes, strict=True):
        found = _scanned(file, spans, is_chosen=is_chosen)
        if found is not None:
            files.append(found)
        n_done += size
        if progress is not None:
            progress(n_done, sum(sizes))
    return Report(tuple(roots), tuple(files), len(chosen) - len(files))


def _files_of(root: str) -> Iterator[tuple[str, bool]]:
    """Give the files that a path stands for, and whether it is a file itself."""
    if os.path.isdir(root):
        yield from ((file, False) for file in _files_below(root))
    elif os.path.lexists(root):
        yield root, True
    else:
        raise SourceMissingError("nothing to scan", path=root)


def _files_below(root: str) -> Iterator[str]:
    """Give all files below a directory in order of their names; links to files too, but not to folders."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(folder, name)
            if os.path.isfile(file):
                yield file


def _size(file: str) -> int:
    try:
        return os.path.getsize(file)
    except OSError:
        return 0


def _scanned(file: str, spans: dict[str, list[ByteRange]], *, is_chosen: bool) -> ScannedFile | None:
    """Look one file through, and note what the metadata of a distributed checkpoint say of those beside it."""
    try:
        source = open_source(file)
        try:
            if os.path.basename(file) == _METADATA:
                folder = os.path.dirname(file)
                spans |= {os.path.join(folder, name): ranges for name, ranges in checkpoint_spans(source).items()}
            return look_through(source, is_chosen=is_chosen, spans=spans.get(file, ()))
        finally:
            source.close()
    except TensorkeepError as error:
        finding = ScanFinding(severity="unreadable", message=f"{error.message}: {error.found or 'no reason given'}")
        return ScannedFile(file, "unknown form", 0, (finding,))
