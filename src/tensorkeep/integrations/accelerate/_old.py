"""What accelerate's own `save_state` writes: pickles, of which nothing is run.

A directory of it holds, where there are such objects:

    model.safetensors or pytorch_model.bin, model_1 …, optimizer.bin, optimizer_1.bin …, scheduler.bin …, scaler.pt,
    custom_checkpoint_0.pkl …, random_states_0.pkl …, sampler.bin …, dl_state_dict.bin …
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.checkpoint import load, verify
from tensorkeep.errors import FormatError, SourceMissingError, as_transport_error
from tensorkeep.integrations.accelerate._files import Process, Shared, files_of, numbered
from tensorkeep.integrations.accelerate._loaders import Place, Seeding, place_of, stateful
from tensorkeep.kinds import refuse

_SHARED: Final = {
    "models": ("model{}.safetensors", "pytorch_model{}.bin"),
    "optimizers": ("optimizer{}.bin",),
    "schedulers": ("scheduler{}.bin",),
    "scalers": ("scaler{}.pt",),
    "registered": ("custom_checkpoint_{}.pkl",),
}
_RANDOM: Final = "random_states_{}.pkl"
_SAMPLER: Final = "sampler{}.bin"
_STATEFUL: Final = "dl_state_dict{}.bin"


def check_old(folder: str, n_expected: Mapping[str, int]) -> None:
    """Make sure that nothing is missing in a directory, as far as that can be known, and that its files are whole."""
    paths = {part: list(files_of(folder, *patterns)) for part, patterns in _SHARED.items()}
    random = list(files_of(folder, _RANDOM))
    missing = [part for part, n in n_expected.items() if len(paths[part]) < n]
    if missing or not random:
        raise SourceMissingError(
            "the directory is no complete state of a run",
            path=folder,
            expected="a tensorkeep.manifest.json, or all that accelerate saves",
            found=f"no {', no '.join(missing + ([] if random else [numbered(_RANDOM, 0)]))}",
        )
    others = (path for pattern in (_SAMPLER, _STATEFUL) for path in files_of(folder, pattern))
    for path in (*(path for found in paths.values() for path in found), *random, *others):
        refuse(verify(path).findings, path)


def read_old_shared(folder: str) -> Shared:
    """Read what all processes have in common."""
    return Shared(**{
        part: [load(path, framework="torch") for path in files_of(folder, *patterns)]
        for part, patterns in _SHARED.items()
    })


def read_old_process(folder: str, number: int, loaders: Sequence[Any]) -> Process:
    """Read what one process has for itself."""
    path = os.path.join(folder, numbered(_RANDOM, number))
    states = load(path, framework="torch")
    try:
        rng = _rng(states)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise FormatError("no states of random generators as accelerate saves them", path=path) from error
    return Process(
        n_processes=len(list(files_of(folder, _RANDOM))),
        step=states.get("step", 0),
        rng=rng,
        generators=None,
        stateful={
            name: load(path, framework="torch")
            for name in stateful(loaders)
            if os.path.isfile(path := os.path.join(folder, numbered(_STATEFUL, int(name))))
        },
        places=[_place(folder, number, loader) for number, loader in enumerate(loaders)],
    )


def _rng(states: Mapping[str, Any]) -> dict[str, Any]:
    """Return states of random generators as `capture` makes them."""
    version, words, gauss = states["random_state"]
    of_numpy = np.random.RandomState()
    of_numpy.set_state(tuple(states["numpy_random_seed"]))
    rng = {
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
        "numpy": of_numpy,
        "torch": states["torch_manual_seed"],
    }
    return rng | ({"cuda": states["torch_cuda_manual_seed"]} if "torch_cuda_manual_seed" in states else {})


def _place(folder: str, number: int, loader: Any) -> Place:
    """Return where a loader is, with the sampler's place if that was saved: as an object, with its data set."""
    place = place_of(loader)
    path = os.path.join(folder, numbered(_SAMPLER, number))
    if not os.path.isfile(path):
        return place
    sampler = load(path, framework="torch", dangerous="record")
    try:
        return Place(place.epoch, msgspec.convert(sampler.state, Seeding))
    except (AttributeError, msgspec.ValidationError) as error:
        raise FormatError("no sampler as accelerate saves it", path=path) from error


def remove_old(folder: str) -> None:
    """Remove what accelerate once saved into a directory that has a newer state now."""
    pickles = (name for names in (*_SHARED.values(), (_RANDOM,), (_SAMPLER,), (_STATEFUL,)) for name in names)
    with as_transport_error("could not remove what was saved before", folder):
        for pattern in pickles:
            if not pattern.endswith(".safetensors"):
                for path in list(files_of(folder, pattern)):
                    os.remove(path)
