"""The files that `save_state` writes, each a safetensors file with one state.

    model.safetensors, model_1.safetensors …     models
    optimizer.safetensors …                      optimizers
    scheduler.safetensors …                      schedulers
    scaler.safetensors                           the gradient scaler
    custom_checkpoint_0.safetensors …            what was registered for checkpointing
    process_0.safetensors …                      for each process: random generators, data loaders, its step

Numbers count the objects of one kind, in the order in which they were prepared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import load
from tensorkeep.errors import FormatError
from tensorkeep.integrations.accelerate._loaders import Place
from tensorkeep.state import Classes

_PATTERNS: Final = {
    "models": "model{}.safetensors",
    "optimizers": "optimizer{}.safetensors",
    "schedulers": "scheduler{}.safetensors",
    "scalers": "scaler{}.safetensors",
    "registered": "custom_checkpoint_{}.safetensors",
    "process": "process_{}.safetensors",
}


class Shared(msgspec.Struct):
    """States that all processes share, each a list in the order in which accelerate keeps the objects.

    Attributes:
        models: State dicts of models.
        optimizers: State dicts of optimizers.
        schedulers: State dicts of schedulers.
        scalers: The state dict of the gradient scaler, if there is one.
        registered: State dicts of objects registered for checkpointing.
    """

    models: list[Any]
    optimizers: list[Any]
    schedulers: list[Any]
    scalers: list[Any]
    registered: list[Any]


class Process(msgspec.Struct):
    """The state of one process.

    Attributes:
        n_processes: The number of processes of the run, or None if unknown.
        step: Batches counted by `accumulate`.
        rng: States of the global random generators.
        generators: Name to random generator of a data loader; None if they were not saved.
        stateful: Number of a data loader that keeps its own position, to its state.
        places: The position of each data loader.
    """

    n_processes: int | None
    step: int
    rng: dict[str, Any]
    generators: dict[str, Any] | None
    stateful: dict[str, Any]
    places: list[Place]


def file_name(part: str, number: int) -> str:
    """Return the name of a file that `save_state` writes."""
    return numbered(_PATTERNS[part], number)


def numbered(pattern: str, number: int) -> str:
    """Return a numbered name: the first is `model.safetensors`, the next `model_1.safetensors`."""
    return pattern.format(number if "_{}" in pattern else f"_{number}" if number else "")


def files_of(folder: str, *patterns: str) -> Iterator[str]:
    """Yield the files of one part, up to the first number that does not exist."""
    for number in count():
        paths = [os.path.join(folder, numbered(pattern, number)) for pattern in patterns]
        found = next(filter(os.path.isfile, paths), None)
        if found is None:
            return
        yield found


def read_shared(folder: str, classes: Classes) -> Shared:
    """Read the states that all processes share."""
    return Shared(**{
        part: [load(path, classes=classes) for path in files_of(folder, _PATTERNS[part])]
        for part in Shared.__struct_fields__
    })


def read_process(folder: str, number: int, classes: Classes) -> Process:
    """Read the state of one process."""
    path = os.path.join(folder, file_name("process", number))
    try:
        return msgspec.convert(load(path, classes=classes), Process)
    except msgspec.ValidationError as error:
        raise FormatError("not the state of a process", path=path, found=str(error)) from error
