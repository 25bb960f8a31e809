"""`scan`: what files would run if another program loaded them, found without running anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.executors import run_in
from tensorkeep.parallel import ProgressMeter
from tensorkeep.scanner._findings import error_text
from tensorkeep.scanner._indexed import shards_of
from tensorkeep.scanner._policy import Judge
from tensorkeep.scanner._report import ScanFinding, ScannedFile, ScanReport
from tensorkeep.scanner._scan_file import checkpoint_spans, scan_file
from tensorkeep.texts import listed
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

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorkeep.trust import Trust

_METADATA = ".metadata"
"""The file of a distributed checkpoint that declares where its tensors are."""

_PARTS = ".distcp"
_IMPORTABLE = (".py", ".pyc", ".pyd", ".so")

_MAX_DEPTH = 8
"""Levels of directories that are listed on a server."""


def scan(
    *paths: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    trust: Trust | None = None,
) -> ScanReport:
    """List what files, or all files below directories, would run if other programs loaded them.

    Nothing is imported, called or built. Files are recognized by their contents, not their names: pickles, every form
    of `torch.save` files, NumPy arrays and archives of them, models of Keras, TensorFlow and ONNX, HDF5 and GGUF
    files, zip and tar archives of any kind, and archives within archives. Of files that hold only tensors, the header
    is checked.

    Args:
        paths: Files and directories, or their URLs; a URL of a directory works if the server lists it. With an
            index come the files that it names, and with the name of a TensorFlow checkpoint all of its files.
        progress: Called with the bytes of files that are done, and of all files.
        executor: What reads the files in place of this process, one by one: any `concurrent.futures.Executor` whose
            tasks can be pickled, such as a `ProcessPoolExecutor` or dask's `client.get_executor()`. All workers must
            see the same files.
        trust: A `Policy`, the path of one or of a public key: formats and pickles that it does not allow are
            findings. None takes the policy that the environment variable `TENSORKEEP_TRUST` names, if there is one;
            False takes none. Signatures are for `verify`.

    Returns:
        The findings. Something that cannot be read is a finding, too.

    Raises:
        SourceMissingError: If a path does not exist, or is a directory without any file.
        TrustError: If the policy or a key is in a directory that is scanned.
        FormatError: If the policy cannot be parsed.
        TransportError: If a server's listing cannot be read.
        TypeError: If something else than a path is given.

    Examples:
        >>> torch.save({"weight": torch.ones(3)}, "model.pt")
        >>> tensorkeep.scan("model.pt").is_clean
        True
    """
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"scan takes paths, not {type(path).__name__}")
    roots = [without_secrets(os.fspath(path)) for path in paths]
    chosen: list[tuple[str, bool]] = []
    judges: list[Judge] = []
    for root in roots:
        judge, here = Judge(root, trust), _some_files_of(root)
        chosen += here
        judges += [judge] * len(here)
    sizes = [_size(file) for file, _ in chosen]
    n_all = sum(sizes)
    modules = {found for file, _ in chosen for found in _modules_of(file)}
    spans = _Spans()
    tasks = [
        ScanTask(file, is_chosen, tuple((span.start, span.stop) for span in spans.of(file)), frozenset(modules), size)
        for (file, is_chosen), size in zip(chosen, sizes, strict=True)
    ]
    meter = ProgressMeter(progress, n_all)
    if executor is None:
        scanned = [_counted(task, meter) for task in tasks]
    else:
        at = [msgspec.structs.replace(task, file=_absolute(task.file)) for task in tasks]
        elsewhere = run_in(executor, scan_elsewhere, at, lambda task, _: meter.add(task.nbytes))
        scanned = [
            found and msgspec.structs.replace(found, path=task.file)
            for task, found in zip(tasks, elsewhere, strict=True)
        ]
    files = [judge.judged(found) for judge, found in zip(judges, scanned, strict=True) if found is not None]
    return ScanReport(tuple(map(str, roots)), tuple(files), len(chosen) - len(files))


class ScanTask(msgspec.Struct, frozen=True):
    """A file to scan.

    Attributes:
        file: Its path or URL.
        is_chosen: Whether the caller named the file itself.
        spans: Parts of it that the metadata of a distributed checkpoint declares.
        modules: Names under which Python could import the other files.
        nbytes: Its size.
    """

    file: str
    is_chosen: bool
    spans: tuple[tuple[int, int], ...]
    modules: frozenset[str]
    nbytes: int


def _absolute(file: str) -> str:
    return file if is_remote(file) else os.path.abspath(file)


def _counted(task: ScanTask, meter: ProgressMeter) -> ScannedFile | None:
    found = scan_one(task)
    meter.add(task.nbytes)
    return found


def scan_elsewhere(task: ScanTask) -> ScannedFile | None:
    """Scan a file that another process has seen; that is all a worker does."""
    if task.nbytes != _size(task.file):
        raise SourceMissingError(
            "a worker does not find the file that it was told to scan",
            path=task.file,
            hint="All workers must see the same files, under absolute paths",
        )
    return scan_one(task)


def scan_one(task: ScanTask) -> ScannedFile | None:
    """Scan a file."""
    spans = [ByteRange(start, stop) for start, stop in task.spans]
    return _scanned(task.file, spans, task.modules, is_chosen=task.is_chosen)


def _modules_of(file: str) -> Iterator[str]:
    """Yield the names under which Python could import a file: as a module, and as a part of a package."""
    folder, name = split(file)
    if name.endswith(_IMPORTABLE):
        yield name.partition(".")[0]
        yield split(folder)[1]


class _Spans:
    """The declared parts of files of distributed checkpoints; remembers one directory at a time."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._spans: dict[str, list[ByteRange]] = {}

    def of(self, file: str) -> Sequence[ByteRange]:
        """Return the parts of a file that the metadata beside it declares, if there are any."""
        folder, name = split(file)
        if is_remote(file) and not name.endswith(_PARTS):  # it would cost a request, mostly in vain
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
    except TensorkeepError:  # the scan of that file itself reports it
        return {}


def _some_files_of(root: str) -> list[tuple[str, bool]]:
    """Return the files at a path, and whether the path itself is a file; refuse a path that has none."""
    found = list(_files_of(root))
    if not found:
        raise SourceMissingError("no files in the directory", path=root, hint="Check the path")
    return found


def _files_of(root: str) -> Iterator[tuple[str, bool]]:
    """Yield the files at a path, and whether the path itself is a file."""
    if is_remote(root):
        yield from ((file, False) for file in _files_at(root)) if is_directory(root) else _with_shards(root)
    elif os.path.isdir(root):
        yield from ((file, False) for file in _files_below(root))
    elif os.path.exists(root):
        yield from _with_shards(root)
    elif os.path.islink(root):
        raise SourceMissingError("a link to a file that does not exist", path=root, found=os.readlink(root))
    else:
        yield from ((file, file.endswith(".index")) for file in _files_called(root))


def _with_shards(file: str) -> Iterator[tuple[str, bool]]:
    """Yield a file that was named, and those that it names if it is an index."""
    shards = shards_of(file)
    yield file, not shards
    yield from ((shard, True) for shard in shards)


def _files_called(stem: str) -> list[str]:
    """Return the files of a TensorFlow checkpoint, which all begin with its name: `ckpt-7.index` for `ckpt-7`."""
    folder, name = os.path.split(stem)
    names = sorted(os.listdir(folder or os.curdir)) if os.path.isdir(folder or os.curdir) else []
    found = [other for other in names if name and other.startswith(f"{name}.")]
    if f"{name}.index" not in found:
        hint = f"Scan the files whose names begin so: {listed(found)}" if found else None
        raise SourceMissingError.at(stem, hint=hint)
    return [os.path.join(folder, other) for other in found]


def _files_at(url: str, depth: int = 0) -> Iterator[str]:
    """Yield the files below a URL, as its server lists them; listed names that are not files are directories."""
    names = list_names(url)
    if names is None:
        raise SourceMissingError(
            "the server does not list the directory",
            path=without_secrets(url),
            hint="Pass URLs of files",
        )
    for name in names:
        file = join(url, name)
        if is_file(file):
            yield file
        elif depth < _MAX_DEPTH:
            yield from _files_at(file, depth + 1)


def _files_below(root: str) -> Iterator[str]:
    """Yield all files below a directory in order of their names, and the directories that are not entered.

    Not entered are directories that cannot be read, and links to directories elsewhere.
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


def _scanned(
    file: str, spans: Sequence[ByteRange], modules: Collection[str], *, is_chosen: bool
) -> ScannedFile | None:
    if not is_remote(file) and os.path.isdir(file):
        message = "it cannot be read, or is a link to a directory elsewhere; it was not scanned"
        return ScannedFile(file, "folder", 0, (ScanFinding(severity="unreadable", message=message),))
    try:
        source = open_source(file)
        try:
            return scan_file(source, is_chosen=is_chosen, spans=spans, modules=modules)
        finally:
            source.close()
    except TensorkeepError as error:
        finding = ScanFinding(severity="unreadable", message=error_text(error))
        return ScannedFile(file, "unknown form", 0, (finding,))
