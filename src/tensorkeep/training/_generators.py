"""Random generators: the ones passed by the caller, and the global ones of Python, NumPy and torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch

from tensorkeep.runs import (
    HOST_GENERATORS,
    Action,
    as_mismatch,
    capture_host_generator,
    capture_host_rng,
    prepare_host_generator,
    python_state,
)
from tensorkeep.runs import prepare_rng as prepare_host_rng
from tensorkeep.runs.torch import RNG_ACTIONS, generator_action
from tensorkeep.runs.torch import capture_rng as capture_torch_rng

GENERATORS: Final = (torch.Generator, *HOST_GENERATORS)
"""Classes of random generators."""


def capture_generator(generator: Any) -> Any:
    """Return a copy of a generator's state."""
    return generator.clone_state() if isinstance(generator, torch.Generator) else capture_host_generator(generator)


def prepare_generator(generator: Any, saved: Any, part: str) -> Action:
    """Try a state on another generator, and return the action that sets this one to it."""
    if not isinstance(generator, torch.Generator):
        return prepare_host_generator(generator, saved, part)
    with as_mismatch(part):
        return generator_action(generator, saved)


def capture_rng() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch, on all devices in use."""
    return capture_host_rng() | capture_torch_rng()


def rng_of(python: Sequence[Any], numpy: Sequence[Any], torch_state: Any, cuda: Any = None) -> dict[str, Any]:
    """Return what `capture_rng` would, from the libraries' own states as accelerate and transformers pickle them."""
    generator = np.random.RandomState()
    generator.set_state(tuple(numpy))
    states = {"python": python_state(python), "numpy": generator, "torch": torch_state}
    if cuda is not None:
        states["cuda"] = cuda if isinstance(cuda, list | tuple) else [cuda]
    return states


def prepare_rng(saved: Any, part: str) -> Iterator[Action]:
    """Yield the actions that set the global generators to what `capture_rng` returned."""
    return prepare_host_rng(saved, part, RNG_ACTIONS)
