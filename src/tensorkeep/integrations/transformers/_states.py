"""What a Trainer needs to resume besides the model: optimizer, scheduler, scaler, random generators; in safe files.

    checkpoint-500/training_state/optimizer.safetensors      optimizer and scheduler
    checkpoint-500/training_state/scaler.safetensors         the gradient scaler, if there is one
    checkpoint-500/training_state/processes.safetensors      the random generators and the loss of each process

They are in a folder of their own, since model servers read all safetensors files in a directory. The pickles that
transformers.Trainer writes instead are read too; nothing in them is run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Final

import torch

from tensorkeep.checkpoint import load, open_checkpoint
from tensorkeep.errors import SourceMissingError, StateDictMismatchError
from tensorkeep.tensors import save
from tensorkeep.training import capture, restore, rng_of

_FOLDER: Final = "training_state"
_OPTIMIZER: Final = "optimizer"
_SCALER: Final = "scaler"
_PROCESSES: Final = "processes"
_UNCHANGED: Final = "Neither optimizer nor scheduler was changed"
_AS_CREATED: Final = "Create them as they were for the checkpoint, or load only its weights and train from the start"


def save_optimizer(folder: str, optimizer: Any, scheduler: Any) -> None:
    """Save the states of optimizer and scheduler."""
    _save(folder, _OPTIMIZER, capture(optimizer=optimizer, scheduler=scheduler, rng=False))


def save_scaler(folder: str, scaler: Any) -> None:
    """Save the state of a gradient scaler."""
    _save(folder, _SCALER, capture(scaler=scaler, rng=False))


def save_processes(folder: str, states: list[dict[str, Any]]) -> None:
    """Save the state of each process."""
    _save(folder, _PROCESSES, {"processes": states})


def _save(folder: str, name: str, state: Mapping[str, Any]) -> None:
    os.makedirs(os.path.join(folder, _FOLDER), exist_ok=True)
    save(state, _path(folder, name), durable=False)


def _path(checkpoint: str, name: str) -> str:
    return os.path.join(checkpoint, _FOLDER, f"{name}.safetensors")


def require_optimizer(checkpoint: str, path: str) -> None:
    """Refuse a checkpoint, which came from `path`, that has only the model and not the state of the optimizer."""
    pickled = (os.path.join(checkpoint, name) for name in ("optimizer.pt", "scheduler.pt"))
    if not os.path.isfile(_path(checkpoint, _OPTIMIZER)) and not all(map(os.path.isfile, pickled)):
        raise SourceMissingError(
            "the checkpoint has only the model, so training cannot resume from it",
            path=path,
            expected="the state of the optimizer",
            hint="It was saved with save_only_model=True. Load the model from it, and train from the start",
        )


def load_optimizer(checkpoint: str, optimizer: Any, scheduler: Any) -> None:
    """Load the states of optimizer and scheduler; if one does not fit, neither is changed."""
    source: Any = _path(checkpoint, _OPTIMIZER)
    if not os.path.exists(source):
        files = {"optimizer": "optimizer.pt", "scheduler": "scheduler.pt"}
        source = {part: _unpickled(checkpoint, file) for part, file in files.items()}
    try:
        restore(source, optimizer=optimizer, scheduler=scheduler, rng=False)
    except StateDictMismatchError as error:
        error.hint = f"{_UNCHANGED}. {_AS_CREATED}"
        raise


def load_scaler(checkpoint: str, scaler: Any) -> None:
    """Load the state of a gradient scaler, if the checkpoint has one."""
    if os.path.exists(_path(checkpoint, _SCALER)):
        restore(_path(checkpoint, _SCALER), scaler=scaler, rng=False)
    elif os.path.exists(os.path.join(checkpoint, "scaler.pt")):
        restore({"scaler": _unpickled(checkpoint, "scaler.pt")}, scaler=scaler, rng=False)


def load_process(checkpoint: str, process: int, n_processes: int) -> dict[str, Any]:
    """Set the random generators of this process, and return the rest of its state.

    If there are no states, as after a run of fewer processes, or none for a device, a warning says so.
    """
    state = _process_state(checkpoint, process, n_processes)
    if state is None:
        _warn(checkpoint, f"no states for process {process}")
        return {}
    n_saved, n_devices = len(state["rng"].get("cuda", ())), torch.cuda.device_count()
    if n_saved > n_devices:
        _warn(checkpoint, f"states of {n_saved} CUDA devices, where there are {n_devices}")
        state["rng"] = {name: value for name, value in state["rng"].items() if name != "cuda"}
    return restore(state)


def _process_state(checkpoint: str, process: int, n_processes: int) -> dict[str, Any] | None:
    """Return what `capture` returned in a process, or None if nothing was saved for it."""
    if os.path.exists(_path(checkpoint, _PROCESSES)):
        processes = _checked_processes(_path(checkpoint, _PROCESSES))
        return dict(processes[process]) if process < len(processes) else None
    name = f"rng_state_{process}.pth" if n_processes > 1 else "rng_state.pth"
    if not os.path.exists(os.path.join(checkpoint, name)):
        return None
    return {"rng": _converted(_unpickled(checkpoint, name))}


def _checked_processes(path: str) -> list[Mapping[str, Any]]:
    saved = load(path)
    processes = saved.get("processes") if isinstance(saved, Mapping) else None
    are_states = isinstance(processes, list) and all(
        isinstance(state, Mapping) and isinstance(state.get("rng"), Mapping) for state in processes
    )
    if not are_states:
        raise StateDictMismatchError("not the states of processes", path=path, expected="a file that a Trainer saved")
    return list(processes or ())


def _converted(pickled: Mapping[str, Any]) -> dict[str, Any]:
    """Convert states that transformers.Trainer pickled to the form that `capture` returns."""
    try:
        return rng_of(pickled["python"], pickled["numpy"], pickled["cpu"], pickled.get("cuda"))
    except (KeyError, TypeError, ValueError, OverflowError) as cause:
        raise StateDictMismatchError("not the states of random generators", found=str(cause)) from cause


def _unpickled(checkpoint: str, name: str) -> Any:
    with open_checkpoint(os.path.join(checkpoint, name), framework="torch") as opened:
        return opened.load_tree()  # NumPy's states stay NumPy's


def _warn(checkpoint: str, found: str) -> None:
    warnings.warn(
        f"{checkpoint}: random generators cannot be restored, so the run will differ from one without a stop:"
        f" found {found}",
        stacklevel=4,
    )
