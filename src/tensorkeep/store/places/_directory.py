"""Steps in the sub-directories of a directory: saved and removed under their locks, by renames."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import ENOTDIR
from typing import Final

from tensorkeep.deltas import DOCUMENT_NAME
from tensorkeep.errors import (
    AccessDeniedError,
    BusyError,
    FormatError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.patched import open_patched, read_document
from tensorkeep.kinds.safetensors import SavedDirectory, open_safetensors, read_index
from tensorkeep.layout import index_name
from tensorkeep.store.places._names import BASE_NAME, step_name, step_of
from tensorkeep.store.places._open_step import ForeignStepError, open_step, record_of
from tensorkeep.store.places._record import StepRecord, read_record
from tensorkeep.store.places._step import Condition, Examined, Identity, Step, StepFiles
from tensorkeep.texts import listed
from tensorkeep.transport import (
    ByteRange,
    delete_directory,
    delete_moved_aside,
    finish_pending_commit,
    has_staging,
    move_aside,
    open_source,
    publish,
    publish_directory,
    recover_directories,
    sync_directory,
    transaction,
)

_INDEX: Final = index_name(BASE_NAME)

_ATTEMPTS: Final = 50
"""How often to open a step that keeps being replaced."""


class DirectoryPlace:
    """Implements `Place`."""

    reads_cost = False
    can_link = True

    def __init__(self, path: str) -> None:
        self.root = os.path.abspath(path)  # at once: the working directory may be another when a thread saves
        if os.path.exists(self.root) and not os.path.isdir(self.root):
            raise TransportError(
                "the store is not a directory",
                path=self.root,
                found="a file",
                hint="Name the directory of a store, or a new one",
            ).numbered(ENOTDIR)

    @property
    def key(self) -> str:
        """The path without links."""
        return os.path.realpath(self.root)

    def path_of(self, step: int) -> str:
        """Return the directory of a step."""
        return os.path.join(self.root, step_name(step))

    def holds(self, path: str) -> bool:
        """Say whether a directory is there."""
        return os.path.isdir(path)

    def require(self) -> None:
        """Refuse a directory that does not exist."""
        if not os.path.isdir(self.root):
            raise SourceMissingError.at(self.root)

    def prepare(self, *, durable: bool) -> None:
        """Make the directory."""
        with as_transport_error("could not create the store", self.root):
            if not os.path.isdir(self.root):
                os.makedirs(self.root, exist_ok=True)
                if durable:
                    sync_directory(os.path.dirname(self.root))

    def was_taken(self, path: str, error: SourceMissingError) -> bool:
        """Say whether another process removed the directory of a step, still empty, as a leftover."""
        was_taken = error.path == path or not os.path.isdir(path)  # it may exist again already
        return was_taken and os.path.isdir(self.root)

    def look(self) -> dict[int, Identity]:
        """Return all steps, ascending."""
        while True:
            numbers = self._numbers()
            found = {step: _identity(self.path_of(step)) for step in numbers}
            if None not in found.values() or numbers == self._numbers():
                return {step: identity for step, identity in found.items() if identity is not None}
            # one was removed meanwhile, perhaps because of newer ones: look again

    def _numbers(self) -> list[int]:
        steps = (step_of(name) for name in _names_in(self.root))
        return sorted(step for step in steps if step is not None)

    def examine(self, step: int, identity: Identity) -> Examined | None:
        """Look into a directory."""
        found = self._examined(step)
        if found is None:
            return None
        return Examined(found, identity if identity == _identity(self.path_of(step)) else None)

    def _examined(self, step: int) -> Step | None:
        path = self.path_of(step)
        try:
            if not (_has_index(path) or _has_patches(path)):  # opening it would wait for an index to appear
                return _without_index(step, path)
            with self.open(step, OpenOptions(backend="pread", as_stored=True)) as opened:
                return Step(step, path, "whole", record_of(opened, step))
        except SourceMissingError as error:
            return _with_problem(step, path, "damaged", error)
        except ForeignStepError as error:
            return _with_problem(step, path, "foreign", error)
        except (IntegrityError, FormatError, LimitError) as error:
            return _with_problem(step, path, "damaged", error)
        except (UnsupportedError, AccessDeniedError) as error:
            return _with_problem(step, path, "unreadable", error)

    def open(self, step: int, options: OpenOptions) -> SavedDirectory:
        """Open a step, again if another process replaced or removed it meanwhile."""
        path, attempt = self.path_of(step), 0
        while True:
            attempt += 1
            before = _identity(path)
            opens = open_patched if _is_patched(path) else open_safetensors
            try:
                return open_step(path, step, options, self.holds, opens=opens)
            except TensorkeepError as error:
                is_same = _identity(path) == before and (before or isinstance(error, SourceMissingError))
                if attempt == _ATTEMPTS or is_same:
                    raise

    @contextmanager
    def appearing(self, step: int, *, durable: bool) -> Iterator[str]:
        """Make a directory beside the others, and rename it; the lock keeps out other saves of the step."""
        path = self.path_of(step)
        with as_transport_error("could not create the step", path):
            os.makedirs(path, exist_ok=True)
        try:
            with transaction(path, BASE_NAME, durable=durable), publish_directory(path, durable=durable) as new:
                yield new
        except BaseException:
            with suppress(OSError):
                os.rmdir(path)
            raise

    def measure(self) -> dict[int, StepFiles]:
        """Measure the files in each directory."""
        return {step: _measured(self.path_of(step)) for step in self.look()}

    def read_note(self, name: str, max_nbytes: int) -> bytes | None:
        """Read a file in the directory."""
        try:
            source = open_source(os.path.join(self.root, name), backend="pread")
        except SourceMissingError:
            return None
        return bytes(source.read(ByteRange(0, min(source.nbytes, max_nbytes))))

    def write_note(self, name: str, text: bytes, *, durable: bool) -> None:
        """Replace a file in the directory."""
        with publish(os.path.join(self.root, name), durable=durable) as sink:
            sink.write([text])

    def remove(self, step: int, seen: Step | None = None) -> None:
        """Rename a step, then delete it."""
        path = self.path_of(step)
        if not os.path.isdir(path):
            raise SourceMissingError("no such step", path=path, found="nothing, or it was just removed")
        with (
            transaction(path, BASE_NAME, durable=False, patience_s=0),  # its lock keeps out a save of the step
            as_transport_error("could not remove the step", path),
        ):
            if seen is not None and seen.condition == "whole" and seen.record != self._record(path):
                raise BusyError("another process has just saved the step", path=path, hint="Look at it again")
            aside = move_aside(path)
        with as_transport_error("could not remove the step", path):
            sync_directory(self.root)  # before the files: a power cut must not leave a step's name without its files
            delete_directory(aside)

    def _record(self, path: str) -> StepRecord | None:
        with suppress(TensorkeepError):
            if _is_patched(path):
                return read_record(read_document(path).index)
            return read_record(read_index(os.path.join(path, _INDEX)).metadata)
        return None

    def sweep(self, steps: Iterable[Step]) -> bool:
        """Remove the leftovers of processes whose locks are gone."""
        with suppress(SourceMissingError), as_transport_error("could not read the store", self.root):
            delete_moved_aside(self.root)
            recover_directories(self.root)
        left = [step.path for step in steps if step.condition == "incomplete" or has_staging(step.path)]
        for path in left:
            _sweep_step(path)
        for step in steps:
            if _has_patches(step.path) and _has_index(step.path):
                _remove_patches(step.path)
        return bool(left)


def _sweep_step(path: str) -> None:
    """Remove what an interrupted save left in a step's directory, and the directory if nothing else is in it."""
    with suppress(TensorkeepError, OSError):
        with transaction(path, BASE_NAME, durable=False, patience_s=0):
            pass  # entering a transaction cleans up after dead ones
        os.rmdir(path)


def _remove_patches(path: str) -> None:
    """Remove what is left of a step that was kept as patches before it was saved whole."""
    with suppress(TensorkeepError, OSError), transaction(path, BASE_NAME, durable=False, patience_s=0):
        document = read_document(path)
        for name in (*document.patches, *_files_of(document.base, path)):
            os.unlink(os.path.join(path, name))
        os.rmdir(os.path.join(path, document.base))
        os.unlink(os.path.join(path, DOCUMENT_NAME))


def _files_of(base: str, path: str) -> list[str]:
    return [os.path.join(base, name) for name in os.listdir(os.path.join(path, base))]


def _names_in(directory: str) -> list[str]:
    """Return the names in a directory; none if it does not exist yet."""
    try:
        with as_transport_error("could not read the store", directory):
            return os.listdir(directory)
    except SourceMissingError:
        return []


def _has_index(path: str) -> bool:
    """Say whether a step is committed, even if its files still have to be renamed."""
    index = os.path.join(path, _INDEX)
    return os.path.lexists(index) or finish_pending_commit(path, BASE_NAME) is not None or os.path.lexists(index)


def _has_patches(path: str) -> bool:
    """Say whether a directory has the file of a step that is kept as patches."""
    return os.path.lexists(os.path.join(path, DOCUMENT_NAME))


def _is_patched(path: str) -> bool:
    """Say whether a step is kept as patches; an index beside them is from a later save."""
    return _has_patches(path) and not _has_index(path)


def _without_index(step: int, path: str) -> Step | None:
    """Distinguish an interrupted save from files of other programs."""
    names = [name for name in _names_in(path) if not name.startswith(".")]
    if names:
        return Step(step, path, "foreign", None, f"not a step of this store: {listed(sorted(names))}")
    problem = "a save is in progress, or was interrupted"
    return Step(step, path, "incomplete", None, problem) if os.path.isdir(path) else None


def _with_problem(step: int, path: str, condition: Condition, error: TensorkeepError) -> Step | None:
    return Step(step, path, condition, None, str(error)) if os.path.isdir(path) else None


def _identity(path: str) -> Identity | None:
    """Return a value that changes when any file of a step does; None if there is no such directory."""
    try:
        found = [(name, os.stat(os.path.join(path, name))) for name in _files_below(path)]
    except (FileNotFoundError, NotADirectoryError):  # the directory, or a file, was just removed
        return () if os.path.isdir(path) else None
    except OSError:  # opening it will report that
        return ()
    return tuple(sorted((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found))


def _files_below(path: str) -> Iterator[str]:
    """Yield the names in a directory, and in its sub-directories; a step that is kept as patches has one."""
    with os.scandir(path) as entries:
        for entry in entries:
            yield entry.name
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from (os.path.join(entry.name, name) for name in os.listdir(entry.path))


def _measured(path: str) -> StepFiles:
    files: list[tuple[str, os.stat_result]] = []
    with suppress(OSError):
        for name in _files_below(path):
            with suppress(OSError):
                files.append((name, os.stat(os.path.join(path, name))))
    regular = [(name, status) for name, status in files if stat.S_ISREG(status.st_mode)]
    return StepFiles(
        nbytes=sum(status.st_size for _, status in regular),
        own_nbytes=sum(status.st_size for _, status in regular if status.st_nlink == 1),
        n_shards=sum(name.endswith(".safetensors") for name, _ in regular),
    )
