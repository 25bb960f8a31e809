"""Patches of a step of reinforcement learning: 1 % of BF16 weights move by 1 to 3 units in the last place."""

from __future__ import annotations

import itertools
import shutil
from functools import cached_property

import numpy as np
import torch

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep import patches
from tensorkeep.torch import apply_patch
from tensorkeep.transport.system import finish_freeing

__all__ = ["CASES"]

_N_TENSORS = 120
_SHARE = 100
"""One weight in so many moves."""


class _Step:
    """Two checkpoints of one file, 2.5 GB each, and the patch between them."""

    def __init__(self, place: Place) -> None:
        self.folder = place.folder / "patches"
        self.old, self.new = (self.folder / name / "model.safetensors" for name in ("old", "new"))
        self.patch = self.folder / "step.patch.safetensors"
        self.target = self.folder / "target"
        self.ways = itertools.cycle((self.patch, self.folder / "back.patch.safetensors"))
        if not self.patch.exists():
            self._make(place.size(10_400_000, 5_200))
        for path in (self.old, self.new, self.patch):
            inputs.read_into_cache(path)

    def _make(self, n_elements: int) -> None:
        rng = np.random.default_rng(0)
        old, new = {}, {}
        for number in range(_N_TENSORS):
            weights = torch.from_numpy(rng.standard_normal(n_elements, np.float32) * np.float32(0.02)).bfloat16()
            places = torch.from_numpy(np.flatnonzero(rng.random(n_elements, np.float32) < 1 / _SHARE))
            steps = rng.choice(np.array([-3, -2, -1, 1, 2, 3], np.int16), len(places))
            old[f"w{number}"], new[f"w{number}"] = weights, weights.clone()
            new[f"w{number}"].view(torch.int16)[places] += torch.from_numpy(steps)
        for tensors, path in ((old, self.old), (new, self.new)):
            path.parent.mkdir(parents=True, exist_ok=True)
            tensorkeep.save_checkpoint(tensors, path.parent, durable=False)
        patches.make(self.new, self.old, self.folder / "back.patch.safetensors", durable=False)
        patches.make(self.old, self.new, self.patch, durable=False)

    @cached_property
    def model(self) -> torch.nn.Module:
        """A model with the old weights."""
        model = torch.nn.Module()
        for name, weights in tensorkeep.load(self.old, framework="torch", backend="pread").items():
            model.register_parameter(name, torch.nn.Parameter(weights, requires_grad=False))
        return model


def _make(step: _Step) -> patches.Summary:
    return patches.make(step.old.parent, step.new.parent, step.target, durable=False)


def _apply(step: _Step) -> None:
    patches.apply(step.old.parent, step.patch, output=step.target, durable=False)


def _apply_to_model(step: _Step) -> None:
    apply_patch(step.model, next(step.ways))  # there and back


def _read_both(step: _Step) -> None:
    for path in (step.old, step.new):
        limits.read_by_two_threads(path)


def _remove(step: _Step) -> None:
    if step.target.is_dir():
        shutil.rmtree(step.target)
    step.target.unlink(missing_ok=True)
    finish_freeing()


def _prepare_model(place: Place) -> _Step:
    step = _Step(place)
    step.model  # noqa: B018 - here, so that it does not count as memory
    return step


_READ_BOTH = Contender("both read into memory", _read_both)

CASES = (
    Case(
        name="patches/make",
        title="`patches.make`, 2.5 GB of BF16; 1 % move by 1 to 3 units in the last place",
        prepare=_Step,
        ours=Contender("tensorkeep", _make),
        peers=(_READ_BOTH,),
        target=AtLeast(0.5),
        max_extra_nbytes=300_000_000,
        after=_remove,
        remark="The patch has 0.70 % of the bytes. Both checkpoints are compared with their digests on the way. "
        "Nothing waits for the disk.",
    ),
    Case(
        name="patches/apply",
        title="`patches.apply`, into another directory",
        prepare=_Step,
        ours=Contender("tensorkeep", _apply),
        peers=(_READ_BOTH,),
        target=AtLeast(0.5),
        max_extra_nbytes=300_000_000,
        after=_remove,
        remark="One checkpoint is read and one is written, with digests.",
    ),
    Case(
        name="patches/model",
        title="`torch.apply_patch`, to a model in memory",
        prepare=_prepare_model,
        ours=Contender("tensorkeep", _apply_to_model),
        peers=(_READ_BOTH,),
        target=AtLeast(0.5),
        max_extra_nbytes=300_000_000,
        remark="Every weight is compared with its digest before, and with the one it gets, before any is written.",
    ),
)
