"""`save_state` and `save_model`: the state of a run in a directory, which changes completely or not at all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tensorkeep.checkpoint import save_checkpoint
from tensorkeep.errors import RefusedError, StateError, UnsupportedError, as_transport_error
from tensorkeep.integrations.accelerate._bucket import refuse_hooks, url_of, write_run
from tensorkeep.integrations.accelerate._files import file_name
from tensorkeep.integrations.accelerate._loaders import generators_of, is_order_lost, place_of, stateful
from tensorkeep.integrations.accelerate._naming import is_numbered, next_folder, retain
from tensorkeep.integrations.accelerate._offload import whole_state
from tensorkeep.integrations.accelerate._old import remove_old
from tensorkeep.integrations.accelerate._processes import gather, meet, on_main, shared_folder, together
from tensorkeep.tensors import save
from tensorkeep.training import capture
from tensorkeep.transport import is_remote, local_path


class IncompleteStateWarning(UserWarning):
    """A run was saved at a point from which it cannot continue exactly."""


def save_state(
    accelerator: Any, output_dir: str | os.PathLike[str] | None = None, safe_serialization: bool = True
) -> Path | str:
    """Save everything that a run needs to continue, completely or not at all.

    It saves what accelerate's method of this name does, and the positions of data loaders; nothing is pickled. All
    processes must call it. Hooks of `register_save_state_pre_hook` get the directory that will replace the old one,
    and files that they write there become part of it.

    Args:
        accelerator: The accelerator of the run.
        output_dir: The directory, which is replaced as a whole; ignored with `automatic_checkpoint_naming`. Or a URL
            in a store, where the main process saves one checkpoint with the states of all.
        safe_serialization: Only True is supported.

    Returns:
        The path of the directory, or the URL; numbered checkpoints in a bucket have one for all.

    Raises:
        UnsupportedError: If pickles are asked for, several nodes have a directory each, or there are hooks and the
            directory is a URL.
        RefusedError: If there is no directory to save to, the process works in it, or checkpoints of another run
            would be taken for newer ones.
        StateError: If a state is not data. The directory is as it was.
        TransportError: If it cannot be written. The directory is as it was.
        TensorkeepError: If not all processes call it.
    """
    if not safe_serialization:
        raise UnsupportedError(
            "pickles are never written",
            expected="safe_serialization=True",
            hint="Leave it out; tied weights, and states that are not tensors, are saved too",
        )
    meet(accelerator, "save_state()")
    _refuse_nodes(accelerator)
    for loss in _losses(accelerator):
        warnings.warn(loss, IncompleteStateWarning, stacklevel=2)
    url = url_of(accelerator, output_dir, saves=True)
    if url is not None:
        return _save_to_bucket(accelerator, url)
    path = on_main(accelerator, lambda: _place(accelerator, output_dir))
    with shared_folder(accelerator, path) as staging:
        _write(accelerator, staging)
    accelerator.project_configuration.iteration += 1
    on_main(accelerator, lambda: _tidy(accelerator, path))
    return Path(path)


def _save_to_bucket(accelerator: Any, url: str) -> str:
    refuse_hooks(accelerator._save_model_state_pre_hook, url)
    own: dict[str, Any] = {}
    with together(accelerator):
        own = _of_process(accelerator)
    processes = gather(accelerator, own)

    def write() -> None:
        weights = [capture(model=model, rng=False)["model"] for model in accelerator._models]
        write_run(accelerator, url, _shared(accelerator, weights), processes)

    on_main(accelerator, write)
    accelerator.project_configuration.iteration += 1
    return url


def _losses(accelerator: Any) -> Iterator[str]:
    """Yield warnings about what a run that continues from here would lose."""
    if not accelerator.sync_gradients:
        yield ("gradients are being accumulated, and are not saved: save when accelerator.sync_gradients is true")
    if any(map(is_order_lost, accelerator._dataloaders)):
        yield (
            "a data loader is in the middle of an epoch whose order cannot be reproduced: save at the end of one, or"
            " use DataLoaderConfiguration(use_seedable_sampler=True)"
        )


def _refuse_nodes(accelerator: Any) -> None:
    each_node = accelerator.project_configuration.save_on_each_node
    if each_node and sum(gather(accelerator, bool(accelerator.is_local_main_process))) > 1:
        raise UnsupportedError(
            "directories on several nodes cannot appear at once",
            expected="save_on_each_node=False, and a file system that all nodes share",
        )


def _place(accelerator: Any, output_dir: str | os.PathLike[str] | None) -> str:
    if is_numbered(accelerator):
        return next_folder(accelerator)
    if not output_dir:
        raise RefusedError("no directory to save to", expected="output_dir, or automatic_checkpoint_naming")
    path = os.path.abspath(local_path(output_dir))
    replaced = Path(path).resolve()
    if replaced in (here := Path.cwd().resolve(), *here.parents):
        raise RefusedError(
            "the working directory of this process would be replaced",
            path=path,
            hint="Save to a directory within it",
        )
    with as_transport_error("could not create the directory", path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _write(accelerator: Any, folder: str) -> None:
    """Write the state of this process; the main process also writes the states that all share."""
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
    """Yield part, number and state of each object; large ones last, so that a value that is not data fails early."""
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
        save(state, os.path.join(folder, name), durable=False)  # the directory is synced as a whole
    except StateError as error:
        error.add_note(f"This is the state for {name}; nothing was saved")
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
    """Save the weights of a model, sharded if they are large, completely or not at all.

    Shards of an earlier save are removed once the new ones are in place. Tied weights are stored once. All processes
    must call it.

    Args:
        accelerator: The accelerator of the run.
        model: The model; offloaded weights are saved too.
        save_directory: The directory, created if it does not exist. Or the URL of a directory in a bucket.
        max_shard_size: Largest size of a shard: a number of bytes, or text such as `"10GB"`.
        safe_serialization: Only True is supported.

    Raises:
        UnsupportedError: If pickles are asked for, a size is invalid, or a weight has no data.
        TransportError: If it cannot be written. The directory is then unchanged.
        TensorkeepError: If a tensor cannot be saved, or not all processes call it.
    """
    if not safe_serialization:
        raise UnsupportedError("pickles are never written", expected="safe_serialization=True", hint="Leave it out")
    meet(accelerator, "save_model()")
    on_main(accelerator, lambda: _write_model(model, os.fsdecode(save_directory), max_shard_size))


def _write_model(model: Any, directory: str, max_shard_size: int | str) -> None:
    if not is_remote(directory):
        directory = local_path(directory)
        with as_transport_error("could not create the directory", directory):
            os.makedirs(directory, exist_ok=True)
    save_checkpoint(whole_state(model), directory, max_shard_size=max_shard_size)
