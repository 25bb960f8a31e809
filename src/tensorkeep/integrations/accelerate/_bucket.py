"""The state of a run in a bucket: one checkpoint at a URL, or numbered ones as the steps of a store.

A bucket has no directory that several processes could fill and that then appears at once. So the main process saves
one checkpoint with the states of all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import load, save_checkpoint
from tensorkeep.errors import FormatError, RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.integrations.accelerate._files import Process, Shared
from tensorkeep.integrations.accelerate._naming import is_numbered
from tensorkeep.state import Classes
from tensorkeep.store import CheckpointStore
from tensorkeep.transport import is_in_store, join

_PROCESSES: Final = "processes"
_NUMBER: Final = "number"


class RunState(msgspec.Struct):
    """What was read of a run.

    Attributes:
        shared: States that all processes share.
        processes: The state of each process.
        number: Its number among the checkpoints of the run.
    """

    shared: Shared
    processes: list[dict[str, Any]]
    number: int


def url_of(accelerator: Any, given: str | os.PathLike[str] | None, *, saves: bool) -> str | None:
    """Return the URL of a checkpoint, or of the store of numbered ones; None for a local directory."""
    numbers = is_numbered(accelerator) and (saves or given is None)
    place = accelerator.project_dir if numbers else given
    text = "" if place is None else os.fspath(place)
    if not is_in_store(text):
        return None
    return join(text, "checkpoints") if numbers else text


def refuse_hooks(hooks: Mapping[Any, Any], url: str) -> None:
    """Refuse hooks, which work with a directory."""
    if hooks:
        raise UnsupportedError(
            "hooks need a directory, and the state of this run is in a bucket",
            path=url,
            expected="no hooks, or a local directory",
        )


def write_run(
    accelerator: Any, url: str, shared: Iterable[tuple[str, int, Any]], processes: list[dict[str, Any]]
) -> None:
    """Save the states of all objects and processes, completely or not at all."""
    state: dict[str, Any] = {part: [] for part in Shared.__struct_fields__}
    for part, _, of_object in shared:
        state[part].append(of_object)
    state |= {_PROCESSES: processes, _NUMBER: accelerator.save_iteration}
    if not is_numbered(accelerator):
        save_checkpoint(state, url)
        return
    number, store = accelerator.save_iteration, _store(accelerator, url)
    highest = next_in(accelerator, url) - 1
    if highest >= number:
        raise RefusedError(
            "the bucket already has checkpoints of another run, which would be taken for newer ones",
            path=url,
            found=f"step {highest}",
            hint="Continue that run with load_state(); or give this one its own project_dir; or set"
            f" accelerator.project_configuration.iteration = {highest + 1}",
        )
    store.save(number, state)


def next_in(accelerator: Any, url: str) -> int:
    """Return the number after the highest of all checkpoints."""
    return max(_store(accelerator, url).steps(), default=-1) + 1


def read_newest(accelerator: Any, url: str, classes: Classes) -> RunState:
    """Read the newest whole checkpoint, and warn of newer ones."""
    store = _store(accelerator, url)
    if not len(store):
        raise SourceMissingError("there is no checkpoint yet", path=url)
    return _run_state(store.load("latest", classes=classes), url)


def read_run(accelerator: Any, url: str, number: int | None, classes: Classes) -> RunState:
    """Read a checkpoint, a numbered one if a number is given; every byte is checked."""
    if number is None:
        return _run_state(load(url, classes=classes, verify=True), url)
    return _run_state(_store(accelerator, url).load(number, classes=classes), url)


def _run_state(state: Any, url: str) -> RunState:
    try:
        parts = {part: state[part] for part in Shared.__struct_fields__}
        return RunState(Shared(**parts), state[_PROCESSES], state[_NUMBER])
    except (KeyError, TypeError) as error:
        raise FormatError("not the state of a run", path=url, found=repr(error)) from error


def process_in(processes: list[dict[str, Any]], number: int, url: str) -> Process:
    """Return the state of one process."""
    try:
        return msgspec.convert(processes[number], Process)
    except (IndexError, msgspec.ValidationError) as error:
        raise FormatError("not the state of a process", path=url, found=str(error)) from error


def _store(accelerator: Any, url: str) -> CheckpointStore:
    limit = accelerator.project_configuration.total_limit
    return CheckpointStore(url, keep_last=limit, keep_best=0, prune=True)
