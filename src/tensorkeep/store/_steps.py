"""What stands in a store: which steps there are, and whether they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
from tensorkeep.kinds.safetensors import Checkpoint, open_safetensors
from tensorkeep.layout import index_name
from tensorkeep.store._names import BASE_NAME, step_name, step_of
from tensorkeep.store._record import StepRecord, read_record
from tensorkeep.transport import finish_pending_commit

Condition = Literal["whole", "damaged", "incomplete", "foreign", "unreadable"]
"""`whole`: index and headers are as they were saved, and all files have their size. `incomplete`: a save is under way
or was interrupted. `foreign`: no store wrote it. `unreadable`: this version, or this user, cannot read it."""

_INDEX: Final = index_name(BASE_NAME)


class Step(msgspec.Struct, frozen=True):
    """One directory of a store.

    Attributes:
        step: Its number.
        path: The directory.
        condition: What it holds.
        record: What is said of it; None where that cannot be read.
        problem: What is wrong with it, in words.
    """

    step: int
    path: str
    condition: Condition
    record: StepRecord | None = None
    problem: str | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Name to number; none where they cannot be read."""
        return dict(self.record.metrics) if self.record else {}


_Identity = tuple[tuple[str, int, int, int], ...]


class StepReader:
    """Reads which steps a store has; what has not changed since it was last read is not read again."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._known: dict[int, tuple[_Identity, Step]] = {}

    def newest_first(self) -> list[Step]:
        """Look at all steps, whole or not; that which was saved last comes first, whatever its number.

        A step of which nobody knows when it was saved stands where the known one with the next lower number does.
        """
        order: dict[int, tuple[str, int]] = {}
        saved_at = ""
        steps = self.survey()
        for found in steps:
            saved_at = found.record.saved_at if found.record else saved_at
            order[found.step] = (saved_at, found.step)
        return sorted(steps, key=lambda found: order[found.step], reverse=True)

    def survey(self) -> list[Step]:
        """Look at all steps, ascending, whole or not; no tensor's data is read."""
        while True:
            numbers = self._numbers()
            found = [self.look_at(step) for step in numbers]
            if None not in found or numbers == self._numbers():
                return [step for step in found if step is not None]
            # one was removed in this instant, perhaps because newer ones have come

    def _numbers(self) -> list[int]:
        steps = (step_of(name) for name in list_names(self.root))
        return sorted(step for step in steps if step is not None)

    def look_at(self, step: int) -> Step | None:
        """Look at a step; no tensor's data is read."""
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
        """Take note that the bytes of a step are not those that were saved, which headers do not tell."""
        known = self._known.get(found.step)
        if known is not None and known[1] is found:
            damaged = msgspec.structs.replace(found, condition="damaged", problem=problem)
            self._known[found.step] = (known[0], damaged)


def latest_of(newest_first: Iterable[Step]) -> int | None:
    """Return the whole step that was saved last; None if none is whole."""
    return next((found.step for found in newest_first if found.condition == "whole"), None)


def whole_metrics(steps: Iterable[Step]) -> dict[int, dict[str, float]]:
    """Return the metrics of the steps that are whole, by number."""
    return {step.step: step.metrics for step in steps if step.condition == "whole"}


def list_names(root: str) -> list[str]:
    """Return the names in a store; none where it does not exist yet."""
    try:
        with as_transport_error("could not read the store", root):
            return os.listdir(root)
    except SourceMissingError:
        return []


def open_step(path: str, options: OpenOptions) -> Checkpoint:
    """Open a step; its index and all headers are checked."""
    try:
        opened = open_safetensors(path, options)
    except (IntegrityError, SourceMissingError):
        if os.path.isdir(path):
            raise
        raise SourceMissingError("no such step", path=path, found="nothing, or no longer") from None
    if isinstance(opened, Checkpoint) and _record_of(opened, path) is not None:
        return opened
    opened.close()
    raise ForeignStepError(
        "no step of this store",
        path=path,
        found="a checkpoint that no store has written, or the step of another number",
        hint="tensorkeep.open opens it",
    )


class ForeignStepError(UnsupportedError):
    """Somebody else's checkpoint stands where a step would."""


def _record_of(opened: Checkpoint, path: str) -> StepRecord | None:
    record = read_record(opened.index.metadata)
    return record if record is not None and record.step == step_of(os.path.basename(path)) else None


def _examined(step: int, path: str) -> Step | None:
    try:
        if not _has_index(path):  # which opening it would wait for
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
    """Say whether a step is committed, be it that its files are still on their way to their places."""
    index = os.path.join(path, _INDEX)
    return os.path.lexists(index) or finish_pending_commit(path, BASE_NAME) is not None or os.path.lexists(index)


def _without_index(step: int, path: str) -> Step | None:
    """Tell an interrupted save from what others have put there."""
    names = [name for name in list_names(path) if not name.startswith(".")]
    if names:
        return Step(step, path, "foreign", None, f"no step of this store: {', '.join(sorted(names)[:5])}")
    problem = "a save is under way, or was interrupted"
    return Step(step, path, "incomplete", None, problem) if os.path.isdir(path) else None


def _with_problem(step: int, path: str, condition: Condition, error: TensorkeepError) -> Step | None:
    return Step(step, path, condition, None, str(error)) if os.path.isdir(path) else None


def _identity(path: str) -> _Identity | None:
    """Return what changes when any file of a step does; None where there is no such directory."""
    try:
        with os.scandir(path) as entries:
            found = [(entry.name, os.stat(entry.path)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):  # of the directory, or of a file that has just gone
        return () if os.path.isdir(path) else None
    except OSError:  # which opening it will tell
        return ()
    return tuple(sorted((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found))
