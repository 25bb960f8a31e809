"""What `save_state` writes: which state stands in which file of the directory.

All files are safetensors files, each of one state:

    model.safetensors, model_1.safetensors …     models, in the order in which they were prepared
    optimizer.safetensors …                      optimizers
    scheduler.safetensors …                      schedulers
    scaler.safetensors                           the scaler of gradients
    custom_checkpoint_0.safetensors …            what was registered for checkpointing
    process_0.safetensors …                      of each process: random generators, data loaders, its step
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
    """States that all processes have in common; each a list in the order in which accelerate keeps the objects.

    Attributes:
        models: State dicts of models.
        optimizers: Those of optimizers.
        schedulers: Those of schedulers.
        scalers: That of the scaler of gradients, if there is one.
        registered: Those of what was registered for checkpointing.
    """

    models: list[Any]
    optimizers: list[Any]
    schedulers: list[Any]
    scalers: list[Any]
    registered: list[Any]


class Process(msgspec.Struct):
    """What each process has for itself.

    Attributes:
        n_processes: How many there were; None where that was not said.
        step: Batches that `accumulate` has counted.
        rng: States of the random generators that everybody has.
        generators: Name to random generator, of data loaders; None where none were saved.
        stateful: Number of a data loader that keeps its place itself, to its state.
        places: Where each data loader was.
    """

    n_processes: int | None
    step: int
    rng: dict[str, Any]
    generators: dict[str, Any] | None
    stateful: dict[str, Any]
    places: list[Place]


def file_name(part: str, number: int) -> str:
    """Return the name of a file."""
    return numbered(_PATTERNS[part], number)


def numbered(pattern: str, number: int) -> str:
    """Return a name with a number in it: the first is called `model.safetensors`, the next `model_1.safetensors`."""
    return pattern.format(number if "_{}" in pattern else f"_{number}" if number else "")


def files_of(folder: str, *patterns: str) -> Iterator[str]:
    """Give the files of one part, until there is none of the next number."""
    for number in count():
        paths = [os.path.join(folder, numbered(pattern, number)) for pattern in patterns]
        found = next(filter(os.path.isfile, paths), None)
        if found is None:
            return
        yield found


def read_shared(folder: str, classes: Classes) -> Shared:
    """Read what all processes have in common."""
    return Shared(**{
        part: [load(path, classes=classes) for path in files_of(folder, _PATTERNS[part])]
        for part in Shared.__struct_fields__
    })


def read_process(folder: str, number: int, classes: Classes) -> Process:
    """Read what one process has for itself."""
    path = os.path.join(folder, file_name("process", number))
    try:
        return msgspec.convert(load(path, classes=classes), Process)
    except msgspec.ValidationError as error:
        raise FormatError("no state of a process", path=path, found=str(error)) from error
