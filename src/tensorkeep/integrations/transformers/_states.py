"""What a Trainer needs to go on beside the model: optimizer, scheduler, scaler, random generators; in safe files.

    checkpoint-500/training_state/optimizer.safetensors      optimizer and scheduler
    checkpoint-500/training_state/scaler.safetensors         the gradient scaler, where there is one
    checkpoint-500/training_state/processes.safetensors      of each process its random generators, and its own loss

They lie in a folder of their own, since servers of models read all safetensors files of a directory. The files that
transformers.Trainer writes in their place, which are pickles, are read as well; nothing of them is run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from tensorkeep.checkpoint import load
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.tensors import save
from tensorkeep.training import capture, restore

_FOLDER: Final = "training_state"
_OPTIMIZER: Final = "optimizer"
_SCALER: Final = "scaler"
_PROCESSES: Final = "processes"
_UNCHANGED: Final = "Neither optimizer nor scheduler was changed"
_AS_MADE: Final = "Make them as they were made for the checkpoint, or load its weights alone and train anew"


def save_optimizer(folder: str, optimizer: Any, scheduler: Any) -> None:
    """Save the states of optimizer and scheduler."""
    _save(folder, _OPTIMIZER, capture(optimizer=optimizer, scheduler=scheduler, rng=False))


def save_scaler(folder: str, scaler: Any) -> None:
    """Save the state of a gradient scaler."""
    _save(folder, _SCALER, capture(scaler=scaler, rng=False))


def save_processes(folder: str, states: list[dict[str, Any]]) -> None:
    """Save what is another in each process."""
    _save(folder, _PROCESSES, {"processes": states})


def _save(folder: str, name: str, state: Mapping[str, Any]) -> None:
    os.makedirs(os.path.join(folder, _FOLDER), exist_ok=True)
    save(state, _path(folder, name), durable=False)


def _path(checkpoint: str, name: str) -> str:
    return os.path.join(checkpoint, _FOLDER, f"{name}.safetensors")


def has_optimizer(checkpoint: str) -> bool:
    """Say whether a checkpoint has what training goes on with, and not the model alone."""
    pickled = (os.path.join(checkpoint, name) for name in ("optimizer.pt", "scheduler.pt"))
    return os.path.isfile(_path(checkpoint, _OPTIMIZER)) or all(map(os.path.isfile, pickled))


def load_optimizer(checkpoint: str, optimizer: Any, scheduler: Any) -> None:
    """Give optimizer and scheduler the states that they had, both or, if one does not fit, none."""
    source: Any = _path(checkpoint, _OPTIMIZER)
    if not os.path.exists(source):
        files = {"optimizer": "optimizer.pt", "scheduler": "scheduler.pt"}
        source = {part: _unpickled(checkpoint, file) for part, file in files.items()}
    try:
        restore(source, optimizer=optimizer, scheduler=scheduler, rng=False)
    except StateDictMismatchError as error:
        error.hint = f"{_UNCHANGED}. {_AS_MADE}"
        raise


def load_scaler(checkpoint: str, scaler: Any) -> None:
    """Give a gradient scaler the state that it had; without one in the checkpoint, it is left as it is."""
    if os.path.exists(_path(checkpoint, _SCALER)):
        restore(_path(checkpoint, _SCALER), scaler=scaler, rng=False)
    elif os.path.exists(os.path.join(checkpoint, "scaler.pt")):
        restore({"scaler": _unpickled(checkpoint, "scaler.pt")}, scaler=scaler, rng=False)


def load_process(checkpoint: str, process: int, n_processes: int) -> dict[str, Any]:
    """Give the random generators of this process the states that they had.

    Where there are none, as after a run of fewer processes, or none for a device, a warning says so.
    """
    state = _process_state(checkpoint, process, n_processes)
    if state is None:
        _warn(checkpoint, f"no states for process {process}")
        return {}
    n_saved, n_devices = len(state["rng"].get("cuda", ())), torch.cuda.device_count()
    if n_saved > n_devices:
        _warn(checkpoint, f"those of {n_saved} CUDA devices, where there are {n_devices}")
        state["rng"] = {name: value for name, value in state["rng"].items() if name != "cuda"}
    return restore(state)


def _process_state(checkpoint: str, process: int, n_processes: int) -> dict[str, Any] | None:
    """Return what `capture` gave in a process, or None where there is nothing."""
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
        isinstance(each, Mapping) and isinstance(each.get("rng"), Mapping) for each in processes
    )
    if not are_states:
        raise StateDictMismatchError("no states of processes", path=path, expected="what a Trainer has saved there")
    return list(processes or ())


def _converted(pickled: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `capture` would say of states that transformers.Trainer has saved."""
    generator = np.random.RandomState(0)
    try:
        version, words, gauss = pickled["python"]
        generator.set_state(pickled["numpy"])
        states: dict[str, Any] = {
            "python": {"version": version, "words": words, "gauss": gauss},
            "numpy": generator,
            "torch": pickled["cpu"],
        }
    except (KeyError, TypeError, ValueError) as cause:
        raise StateDictMismatchError("no states of random generators", found=str(cause)) from cause
    if "cuda" in pickled:
        of_devices = pickled["cuda"]
        states["cuda"] = of_devices if isinstance(of_devices, list | tuple) else [of_devices]
    return states


def _unpickled(checkpoint: str, name: str) -> Any:
    return load(os.path.join(checkpoint, name), framework="torch")


def _warn(checkpoint: str, found: str) -> None:
    warnings.warn(
        f"{checkpoint}: random generators are not as they were when it was saved, so the run will not be the same:"
        f" found {found}",
        stacklevel=4,
    )
