"""`load_state`: the state of a run, loaded from a directory into its objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelerate.utils import find_tied_parameters

from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import RefusedError, SourceMissingError, StateDictMismatchError, TensorkeepError
from tensorkeep.integrations.accelerate._bucket import (
    RunState,
    next_in,
    process_in,
    read_newest,
    read_run,
    refuse_hooks,
    url_of,
)
from tensorkeep.integrations.accelerate._files import Process, Shared, file_name, read_process, read_shared
from tensorkeep.integrations.accelerate._loaders import generators_of, prepare_places, stateful
from tensorkeep.integrations.accelerate._naming import is_numbered, newest, next_number
from tensorkeep.integrations.accelerate._old import check_old, read_old_process, read_old_shared
from tensorkeep.integrations.accelerate._processes import meet, on_main, together
from tensorkeep.kinds import refuse
from tensorkeep.state import Classes
from tensorkeep.training import restore
from tensorkeep.transport import local_path


def load_state(
    accelerator: Any,
    input_dir: str | os.PathLike[str] | None = None,
    load_kwargs: Mapping[str, Any] | None = None,  # noqa: ARG001 - accelerate has it
    *,
    strict: bool = True,
    rng: bool = True,
    classes: Classes = (),
    map_location: Any = None,  # noqa: ARG001 - accelerate has it
) -> None:
    """Load what `save_state` saved into the objects of a run, so that it continues as if it had never stopped.

    Every byte is checked against its digest, and every state against its object, before any object is changed.
    Directories that accelerate itself saved are accepted too, and nothing in their pickles is run. All processes must
    call it. Hooks of `register_load_state_pre_hook` run after the bytes were checked.

    Args:
        accelerator: The accelerator of the run.
        input_dir: The directory, or its URL in a store; None for the newest whole one with
            `automatic_checkpoint_naming`.
        load_kwargs: Ignored.
        strict: Whether a model's names must be exactly those saved, and optimizers and schedulers of the same kind.
        rng: Whether to set the random generators; if not, another number of processes is allowed.
        classes: Dataclasses, enums and named tuples that may be created from the files.
        map_location: Ignored.

    Raises:
        SourceMissingError: If there is no such directory, a file is missing, or there is no checkpoint yet.
        IntegrityError: If a byte is not as it was saved.
        StateDictMismatchError: If a state does not fit its object. Nothing was changed.
        UnsupportedError: If a state holds an object of a class that was not passed. Nothing was changed.
        RefusedError: If no directory is given, and checkpoints are not numbered.
        FormatError: If a file is malformed.
        UnsafeError: If a pickle names functions that serve only to do harm.
        TransportError: If a file cannot be read.
    """
    meet(accelerator, "load_state()")
    url = url_of(accelerator, input_dir, saves=False)
    if url is not None:
        _load_from_bucket(accelerator, url, input_dir is None, strict=strict, rng=rng, classes=classes)
        return
    folder, is_own = on_main(accelerator, lambda: _checked(accelerator, input_dir))
    with together(accelerator):
        try:
            _load(accelerator, folder, is_own=is_own, strict=strict, rng=rng, classes=classes)
        except TensorkeepError as error:
            error.add_note(f"This happened while the state of a run was loaded from {folder}")
            raise
    if is_numbered(accelerator):
        accelerator.project_configuration.iteration = on_main(accelerator, lambda: next_number(accelerator))


def _load_from_bucket(
    accelerator: Any, url: str, numbers: bool, *, strict: bool, rng: bool, classes: Classes
) -> None:
    """Load a checkpoint that every process reads; the main one says which, if they are numbered."""
    refuse_hooks(accelerator._load_model_state_pre_hook, url)
    newest: RunState | None = None

    def find() -> int:
        nonlocal newest
        newest = read_newest(accelerator, url, classes)
        return newest.number

    number = on_main(accelerator, find) if numbers else None
    with together(accelerator):
        run = newest or read_run(accelerator, url, number, classes)
        process = _process(accelerator, lambda place: process_in(run.processes, place, url), url, rng=rng)
        _apply(accelerator, list(accelerator._models), run.shared, process, strict=strict, rng=rng)
    if numbers:
        accelerator.project_configuration.iteration = on_main(accelerator, lambda: next_in(accelerator, url))


def _checked(accelerator: Any, input_dir: str | os.PathLike[str] | None) -> tuple[str, bool]:
    """Verify the directory to load; return its path, and whether tensorkeep wrote it and not accelerate."""
    if input_dir is not None:
        folder = os.path.abspath(local_path(input_dir, hint="Fetch the checkpoint first: tensorkeep.fetch"))
        return folder, _check(accelerator, folder)
    if is_numbered(accelerator):
        return newest(accelerator, lambda folder: _check(accelerator, folder))
    raise RefusedError("no directory to load from", expected="input_dir, or automatic_checkpoint_naming")


def _check(accelerator: Any, folder: str) -> bool:
    """Check that a directory is whole; return whether tensorkeep wrote it and not accelerate."""
    try:
        findings = verify_folder(folder)
    except SourceMissingError:  # no manifest, or no directory
        if os.path.isfile(os.path.join(folder, file_name("process", 0))):
            raise
        _check_old(accelerator, folder)
        return False
    refuse(findings, folder)
    return True


def _check_old(accelerator: Any, folder: str) -> None:
    if not os.path.isdir(folder):
        raise SourceMissingError("no such directory", path=folder)
    n_expected = {
        "optimizers": len(accelerator._optimizers),
        "schedulers": len(accelerator._schedulers),
        "scalers": int(accelerator.scaler is not None),
        "registered": len(accelerator._custom_objects),
    }
    check_old(folder, n_expected)


def _load(accelerator: Any, folder: str, *, is_own: bool, strict: bool, rng: bool, classes: Classes) -> None:
    models = list(accelerator._models)
    for hook in accelerator._load_model_state_pre_hook.values():
        hook(models, folder)
    shared = read_shared(folder, classes) if is_own else read_old_shared(folder)
    if len(models) < len(accelerator._models):  # a hook has taken the others, and loads them itself
        del shared.models[len(models) :]
    if not is_own:
        _complete_ties(models, shared.models)

    def read(number: int) -> Process:
        return _read_process(accelerator, folder, number, is_own=is_own, classes=classes)

    _apply(accelerator, models, shared, _process(accelerator, read, folder, rng=rng), strict=strict, rng=rng)


def _apply(
    accelerator: Any, models: Sequence[Any], shared: Shared, process: Process, *, strict: bool, rng: bool
) -> None:
    """Load all that was read into the objects of a run, after all of it was checked."""
    actions = list(prepare_places(accelerator._dataloaders, process.places))
    _restore(accelerator, models, shared, process, strict=strict, rng=rng)
    for action in actions:
        action()
    accelerator.step = process.step


def _complete_ties(models: Sequence[Any], states: Sequence[Any]) -> None:
    """Add the names of tied weights that accelerate left out: it saves only one of them."""
    for model, state in zip(models, states, strict=False):
        for names in find_tied_parameters(model) if isinstance(state, dict) else ():
            kept = next((name for name in names if name in state), None)
            if kept is not None:
                for name in names:
                    state.setdefault(name, state[kept])


def _process(accelerator: Any, read: Callable[[int], Process], path: str, *, rng: bool) -> Process:
    """Read the state of this process, or of the first process if random generators are not loaded."""
    first = read(0)
    if not rng:
        return first
    if first.n_processes != accelerator.num_processes:
        raise StateDictMismatchError(
            "random generators cannot be loaded: the run had another number of processes",
            path=path,
            expected=f"{accelerator.num_processes} processes",
            found=f"{first.n_processes}",
            hint="Nothing was changed; load_state(…, rng=False) leaves the generators unchanged",
        )
    return read(accelerator.process_index) if accelerator.process_index else first


def _read_process(accelerator: Any, folder: str, number: int, *, is_own: bool, classes: Classes) -> Process:
    if is_own:
        return read_process(folder, number, classes)
    return read_old_process(folder, number, accelerator._dataloaders)


def _restore(
    accelerator: Any, models: Sequence[Any], shared: Shared, process: Process, *, strict: bool, rng: bool
) -> None:
    """Load all states into their objects, or none."""
    stateful_loaders = stateful(accelerator._dataloaders)
    targets: dict[str, Any] = {
        "optimizers": accelerator._optimizers,
        "schedulers": accelerator._schedulers,
        "scalers": [] if accelerator.scaler is None else [accelerator.scaler],
        "registered": accelerator._custom_objects,
    }
    states: dict[str, Any] = {part: getattr(shared, part) for part in targets} | {"models": shared.models}
    targets["models"] = models
    if rng and process.generators is not None:
        targets["generators"], states["generators"] = generators_of(accelerator._dataloaders), process.generators
    if process.stateful or stateful_loaders:
        targets["stateful"], states["stateful"] = stateful_loaders, process.stateful
    restore(states | {"rng": process.rng}, rng=rng, strict=strict, **targets)
