"""The steps in a store, and whether they are whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Literal

import msgspec

from tensorkeep.errors import (
    AccessDeniedError,
    FormatError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import Checkpoint, open_safetensors, with_index
from tensorkeep.layout import index_name
from tensorkeep.store._names import BASE_NAME, step_name, step_of
from tensorkeep.store._record import StepRecord, read_record
from tensorkeep.texts import listed
from tensorkeep.transport import finish_pending_commit, is_remote

Condition = Literal["whole", "damaged", "incomplete", "foreign", "unreadable"]
"""`whole`: the shard index and all headers are as saved, and all files have their size. `damaged`: they are not.
`incomplete`: a save is in progress or was interrupted. `foreign`: not written by a store. `unreadable`: this version,
or this user, cannot read it."""

_INDEX: Final = index_name(BASE_NAME)


class Step(msgspec.Struct, frozen=True):
    """A step in a store.

    Attributes:
        step: Its number.
        path: Its directory.
        condition: Whether it is whole, and if not, why.
        record: Its number, metrics and time, or None if they cannot be read.
        problem: What is wrong with it, or None.
    """

    step: int
    path: str
    condition: Condition
    record: StepRecord | None = None
    problem: str | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Metric name to value; empty if they cannot be read."""
        return dict(self.record.metrics) if self.record else {}


class StepFiles(msgspec.Struct, frozen=True):
    """The size of a step's files.

    Attributes:
        nbytes: Bytes of all of them.
        own_nbytes: Bytes that removing the step would free, in files that no other step shares.
        n_shards: Number of files with tensors.
    """

    nbytes: int
    own_nbytes: int
    n_shards: int


class StepListing(msgspec.Struct, frozen=True):
    """A step in the listing of a store.

    Attributes:
        found: The step.
        files: The size of its files.
        is_latest: Whether it is the whole step that was saved last.
        is_best: Whether it is the whole step with the best metric.
    """

    found: Step
    files: StepFiles
    is_latest: bool
    is_best: bool


_Identity = tuple[tuple[str, int, int, int], ...]


class StepReader:
    """Reads the steps of a store; unchanged steps are not read again."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._known: dict[int, tuple[_Identity, Step]] = {}

    def newest_first(self) -> list[Step]:
        """Return all steps, whole or not, the last saved first, whatever its number.

        A step whose time is unknown is taken to be as old as the one with the next lower number.
        """
        order: dict[int, tuple[str, int]] = {}
        saved_at = ""
        steps = self.survey()
        for found in steps:
            saved_at = found.record.saved_at if found.record else saved_at
            order[found.step] = (saved_at, found.step)
        return sorted(steps, key=lambda found: order[found.step], reverse=True)

    def survey(self) -> list[Step]:
        """Return all steps, ascending, whole or not; no tensor's data is read."""
        while True:
            numbers = self._numbers()
            found = [self.look_at(step) for step in numbers]
            if None not in found or numbers == self._numbers():
                return [step for step in found if step is not None]
            # one was removed meanwhile, perhaps because of newer ones: look again

    def _numbers(self) -> list[int]:
        steps = (step_of(name) for name in list_names(self.root))
        return sorted(step for step in steps if step is not None)

    def look_at(self, step: int) -> Step | None:
        """Return a step, or None if there is none; no tensor's data is read."""
        path = os.path.join(self.root, step_name(step))
        identity = _identity(path)
        known = self._known.get(step)
        if known is not None and known[0] == identity:
            return known[1]
        self._known.pop(step, None)
        found = _examined(step, path) if identity is not None else None
        if identity and found is not None and found.condition == "whole" and identity == _identity(path):
            self._known[step] = (identity, found)
        return found

    def note_damage(self, found: Step, problem: str) -> None:
        """Remember that a step's data is damaged, which its headers do not show."""
        known = self._known.get(found.step)
        if known is not None and known[1] is found:
            damaged = msgspec.structs.replace(found, condition="damaged", problem=problem)
            self._known[found.step] = (known[0], damaged)


def latest_of(newest_first: Iterable[Step]) -> int | None:
    """Return the whole step that was saved last, or None."""
    return next((found.step for found in newest_first if found.condition == "whole"), None)


def whole_metrics(steps: Iterable[Step]) -> dict[int, dict[str, float]]:
    """Return the metrics of the whole steps, by number."""
    return {step.step: step.metrics for step in steps if step.condition == "whole"}


def measure(path: str) -> StepFiles:
    """Measure the files of a step."""
    files: list[tuple[str, os.stat_result]] = []
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                files.append((entry.name, entry.stat()))
    regular = [(name, status) for name, status in files if stat.S_ISREG(status.st_mode)]
    return StepFiles(
        nbytes=sum(status.st_size for _, status in regular),
        own_nbytes=sum(status.st_size for _, status in regular if status.st_nlink == 1),
        n_shards=sum(name.endswith(".safetensors") for name, _ in regular),
    )


def list_names(root: str) -> list[str]:
    """Return the names in a directory; none if it does not exist yet."""
    try:
        with as_transport_error("could not read the store", root):
            return os.listdir(root)
    except SourceMissingError:
        return []


def is_store(path: str) -> bool:
    """Say whether a path is a directory of steps."""
    return not is_remote(path) and os.path.isdir(path) and any(step_of(name) is not None for name in list_names(path))


def open_step(path: str, options: OpenOptions) -> Checkpoint:
    """Open a step, and check its index and all headers."""
    try:
        opened = open_safetensors(path, options)
    except (IntegrityError, SourceMissingError):
        if os.path.isdir(path):
            raise
        raise SourceMissingError("no such step", path=path, found="nothing, or no longer") from None
    checkpoint = with_index(opened)
    if checkpoint is not None and _record_of(checkpoint, path) is not None:
        return checkpoint
    opened.close()
    raise ForeignStepError(
        "not a step of this store",
        path=path,
        found="a checkpoint that was not written by a store, or a step with another number",
        hint="tensorkeep.open opens it",
    )


class ForeignStepError(UnsupportedError):
    """A directory with a step's name is a checkpoint, but not a step of the store."""


def _record_of(opened: Checkpoint, path: str) -> StepRecord | None:
    record = read_record(opened.index.metadata)
    return record if record is not None and record.step == step_of(os.path.basename(path)) else None


def _examined(step: int, path: str) -> Step | None:
    try:
        if not _has_index(path):  # opening it would wait for one to appear
            return _without_index(step, path)
        with open_step(path, OpenOptions(backend="pread")) as opened:
            return Step(step, path, "whole", _record_of(opened, path))
    except SourceMissingError as error:
        return _with_problem(step, path, "damaged", error)
    except ForeignStepError as error:
        return _with_problem(step, path, "foreign", error)
    except (IntegrityError, FormatError, LimitError) as error:
        return _with_problem(step, path, "damaged", error)
    except (UnsupportedError, AccessDeniedError) as error:
        return _with_problem(step, path, "unreadable", error)


def _has_index(path: str) -> bool:
    """Say whether a step is committed, even if its files still have to be renamed."""
    index = os.path.join(path, _INDEX)
    return os.path.lexists(index) or finish_pending_commit(path, BASE_NAME) is not None or os.path.lexists(index)


def _without_index(step: int, path: str) -> Step | None:
    """Distinguish an interrupted save from files of other programs."""
    names = [name for name in list_names(path) if not name.startswith(".")]
    if names:
        return Step(step, path, "foreign", None, f"not a step of this store: {listed(sorted(names))}")
    problem = "a save is in progress, or was interrupted"
    return Step(step, path, "incomplete", None, problem) if os.path.isdir(path) else None


def _with_problem(step: int, path: str, condition: Condition, error: TensorkeepError) -> Step | None:
    return Step(step, path, condition, None, str(error)) if os.path.isdir(path) else None


def _identity(path: str) -> _Identity | None:
    """Return a value that changes when any file of a step does; None if there is no such directory."""
    try:
        with os.scandir(path) as entries:
            found = [(entry.name, os.stat(entry.path)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):  # the directory, or a file, was just removed
        return () if os.path.isdir(path) else None
    except OSError:  # opening it will report that
        return ()
    return tuple(sorted((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found))
