"""Directories of accelerate's own `save_state`: pickles, which are never run.

For each object of the run, they contain:

    model.safetensors or pytorch_model.bin, model_1 …, optimizer.bin, optimizer_1.bin …, scheduler.bin …, scaler.pt,
    custom_checkpoint_0.pkl …, random_states_0.pkl …, sampler.bin …, dl_state_dict.bin …
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import open_checkpoint, verify
from tensorkeep.errors import FormatError, SourceMissingError, as_transport_error
from tensorkeep.formats.pickles import Dangerous
from tensorkeep.integrations.accelerate._files import Process, Shared, files_of, numbered
from tensorkeep.integrations.accelerate._loaders import Place, Seeding, place_of, stateful
from tensorkeep.kinds import LoadOptions, refuse
from tensorkeep.training import rng_of

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
    """Check that a directory has all its files, as far as that is known, and that they are whole."""
    paths = {part: list(files_of(folder, *patterns)) for part, patterns in _SHARED.items()}
    random = list(files_of(folder, _RANDOM))
    missing = [part for part, n in n_expected.items() if len(paths[part]) < n]
    if missing or not random:
        raise SourceMissingError(
            "the directory is not a complete state of a run",
            path=folder,
            expected="a tensorkeep.manifest.json, or all files that accelerate saves",
            found=f"no {', no '.join(missing + ([] if random else [numbered(_RANDOM, 0)]))}",
        )
    others = (path for pattern in (_SAMPLER, _STATEFUL) for path in files_of(folder, pattern))
    for path in (*(path for found in paths.values() for path in found), *random, *others):
        refuse(verify(path).findings, path)


def read_old_shared(folder: str) -> Shared:
    """Read the states that all processes share."""
    return Shared(**{
        part: [_read(path) for path in files_of(folder, *patterns)] for part, patterns in _SHARED.items()
    })


def read_old_process(folder: str, number: int, loaders: Sequence[Any]) -> Process:
    """Read the state of one process."""
    path = os.path.join(folder, numbered(_RANDOM, number))
    states = _read(path)
    try:
        rng = _rng(states)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise FormatError("not the states of random generators as accelerate saves them", path=path) from error
    return Process(
        n_processes=len(list(files_of(folder, _RANDOM))),
        step=states.get("step", 0),
        rng=rng,
        generators=None,
        stateful={
            name: _read(path)
            for name in stateful(loaders)
            if os.path.isfile(path := os.path.join(folder, numbered(_STATEFUL, int(name))))
        },
        places=[_place(folder, number, loader) for number, loader in enumerate(loaders)],
    )


def _read(path: str, *, dangerous: Dangerous = "refuse") -> Any:
    """Load a file: tensors of torch, and NumPy's arrays as they were."""
    with open_checkpoint(path, framework="torch", dangerous=dangerous) as opened:
        return opened.load_state(LoadOptions(framework=None if opened.has_tree else "torch"))


def _rng(states: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the states of random generators to the form that `capture` returns."""
    numpy, cuda = states["numpy_random_seed"], states.get("torch_cuda_manual_seed")
    return rng_of(states["random_state"], numpy, states["torch_manual_seed"], cuda)


def _place(folder: str, number: int, loader: Any) -> Place:
    """Return the position of a loader, with its sampler's if that was saved (as an object, with its data set)."""
    place = place_of(loader)
    path = os.path.join(folder, numbered(_SAMPLER, number))
    if not os.path.isfile(path):
        return place
    sampler = _read(path, dangerous="record")
    try:
        return Place(place.epoch, msgspec.convert(sampler.state, Seeding))
    except (AttributeError, msgspec.ValidationError) as error:
        raise FormatError("not a sampler as accelerate saves it", path=path) from error


def remove_old(folder: str) -> None:
    """Remove the pickles of accelerate from a directory that now has a newer state."""
    pickles = (name for names in (*_SHARED.values(), (_RANDOM,), (_SAMPLER,), (_STATEFUL,)) for name in names)
    with as_transport_error("could not remove the files of an earlier save", folder):
        for pattern in pickles:
            if not pattern.endswith(".safetensors"):
                for path in list(files_of(folder, pattern)):
                    os.remove(path)
