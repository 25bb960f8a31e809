"""The state of a run into a directory, which has all of it or is as it was."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tensorkeep.checkpoint import save_checkpoint
from tensorkeep.errors import RefusedError, StateError, UnsupportedError, as_transport_error
from tensorkeep.integrations.accelerate._files import file_name
from tensorkeep.integrations.accelerate._loaders import generators_of, is_order_lost, place_of, stateful
from tensorkeep.integrations.accelerate._naming import is_numbered, next_folder, retain
from tensorkeep.integrations.accelerate._offload import whole_state
from tensorkeep.integrations.accelerate._old import remove_old
from tensorkeep.integrations.accelerate._processes import gather, meet, on_main, shared_folder
from tensorkeep.tensors import save
from tensorkeep.training import capture


class IncompleteStateWarning(UserWarning):
    """A run was saved at a point from which it cannot go on exactly as it would have."""


def save_state(
    accelerator: Any, output_dir: str | os.PathLike[str] | None = None, safe_serialization: bool = True
) -> Path:
    """Save all that a run needs to go on: complete, or the directory is as it was before.

    Saves what accelerate's method of this name does, and where data loaders are; nothing is pickled. All processes
    must call it. Hooks of `register_save_state_pre_hook` are called as ever, with the directory that is about to take
    its place: whatever they write into it is part of the whole.
    """
    if not safe_serialization:
        raise UnsupportedError(
            "nothing is pickled here",
            expected="safe_serialization=True",
            hint="Leave it out; weights that are tied, and states that are no tensors, are saved too",
        )
    meet(accelerator, "save_state()")
    _refuse_nodes(accelerator)
    for loss in _losses(accelerator):
        warnings.warn(loss, IncompleteStateWarning, stacklevel=2)
    path = on_main(accelerator, lambda: _place(accelerator, output_dir))
    with shared_folder(accelerator, path) as staging:
        _write(accelerator, staging)
    accelerator.project_configuration.iteration += 1
    on_main(accelerator, lambda: _tidy(accelerator, path))
    return Path(path)


def _losses(accelerator: Any) -> Iterator[str]:
    """Give what a run that goes on from here will have lost."""
    if not accelerator.sync_gradients:
        yield (
            "gradients are being accumulated, and are not saved: save where accelerator.sync_gradients is true, so"
            " that none are lost"
        )
    if any(map(is_order_lost, accelerator._dataloaders)):
        yield (
            "a data loader is amid an epoch that it shuffles in an order that is not known: save at the end of one,"
            " or use DataLoaderConfiguration(use_seedable_sampler=True), to go on with the batches that are left"
        )


def _refuse_nodes(accelerator: Any) -> None:
    each_node = accelerator.project_configuration.save_on_each_node
    if each_node and sum(gather(accelerator, bool(accelerator.is_local_main_process))) > 1:
        raise UnsupportedError(
            "directories of several nodes cannot appear at once",
            expected="save_on_each_node=False, and a file system that all nodes share",
        )


def _place(accelerator: Any, output_dir: str | os.PathLike[str] | None) -> str:
    if is_numbered(accelerator):
        return next_folder(accelerator)
    if not output_dir:
        raise RefusedError("there is no directory to save to", expected="output_dir, or automatic_checkpoint_naming")
    path = os.path.abspath(os.path.expanduser(os.fsdecode(output_dir)))
    replaced = Path(path).resolve()
    if replaced in (here := Path.cwd().resolve(), *here.parents):
        raise RefusedError(
            "the directory is replaced as a whole, and this process works in it",
            path=path,
            hint="Save into a directory within it",
        )
    with as_transport_error("could not make the directory", path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _write(accelerator: Any, folder: str) -> None:
    """Write this process's part; what all have in common is written by the main process."""
    weights = [capture(model=model, rng=False)["model"] for model in accelerator._models]
    for hook in accelerator._save_model_state_pre_hook.values():
        hook(accelerator._models, weights, folder)
    _save(_of_process(accelerator), folder, "process", accelerator.process_index)
    if accelerator.is_main_process:
        for part, number, state in _shared(accelerator, weights):
            _save(state, folder, part, number)


def _of_process(accelerator: Any) -> dict[str, Any]:
    loaders = accelerator._dataloaders
    return capture(
        n_processes=accelerator.num_processes,
        step=accelerator.step,
        generators=generators_of(loaders),
        stateful={name: loader.state_dict() for name, loader in stateful(loaders).items()},
        places=[msgspec.to_builtins(place_of(loader)) for loader in loaders],
    )


def _shared(accelerator: Any, weights: list[Any]) -> Iterator[tuple[str, int, Any]]:
    """Give part, number and state of each object; large ones last, so that what is no data is found soon."""
    scalers = [] if accelerator.scaler is None else [accelerator.scaler]
    parts = {
        "registered": accelerator._custom_objects,
        "scalers": scalers,
        "schedulers": accelerator._schedulers,
        "optimizers": accelerator._optimizers,
    }
    for part, objects in parts.items():
        yield from ((part, number, _state_of(value, part)) for number, value in enumerate(objects))
    yield from (("models", number, state) for number, state in enumerate(weights))


def _state_of(value: Any, part: str) -> Any:
    return capture(rng=False, **{part: value})[part]


def _save(state: Any, folder: str, part: str, number: int) -> None:
    name = file_name(part, number)
    try:
        save(state, os.path.join(folder, name), durable=False)  # it becomes so with the directory
    except StateError as error:
        error.add_note(f"This is the state for {name}, and was about to be saved")
        raise


def _tidy(accelerator: Any, path: str) -> None:
    remove_old(path)
    if is_numbered(accelerator):
        retain(accelerator, path)


def save_model(
    accelerator: Any,
    model: Any,
    save_directory: str | os.PathLike[str],
    max_shard_size: int | str = "10GB",
    safe_serialization: bool = True,
) -> None:
    """Save the weights of a model, in shards if they are large: complete, or the directory has what it had before.

    Shards of an earlier save go when the new ones are in place. Weights that are tied are stored once. All processes
    must call it.
    """
    if not safe_serialization:
        raise UnsupportedError("nothing is pickled here", expected="safe_serialization=True", hint="Leave it out")
    meet(accelerator, "save_model()")
    on_main(accelerator, lambda: _write_model(model, os.path.expanduser(save_directory), max_shard_size))


def _write_model(model: Any, directory: str | os.PathLike[str], max_shard_size: int | str) -> None:
    with as_transport_error("could not make the directory", os.fsdecode(directory)):
        os.makedirs(directory, exist_ok=True)
    save_checkpoint(whole_state(model), directory, max_shard_size=max_shard_size)
