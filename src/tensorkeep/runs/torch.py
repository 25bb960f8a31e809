"""torch's random generators, for runs of torch and of Keras (imports torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from tensorkeep.runs._actions import Action
from tensorkeep.runs._generators import type_name


def capture_rng() -> dict[str, Any]:
    """Return the states of torch's global generators, on all devices in use."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def generator_action(generator: torch.Generator, saved: Any) -> Action:
    """Try a state, and return the action that sets a generator to it."""
    if isinstance(saved, torch.Generator):
        if saved.device.type != generator.device.type:
            raise TypeError(f"expected a generator on {generator.device}, found one on {saved.device}")
        saved = saved.get_state()
    state = _checked_bytes(saved)
    torch.Generator(generator.device).set_state(state)
    return lambda: generator.set_state(state)


def _cuda_action(saved: Any) -> Action:
    states = [_checked_bytes(state) for state in saved]
    n_devices = torch.cuda.device_count()
    if len(states) > n_devices:
        raise ValueError(f"expected states of at most {n_devices} CUDA devices, found {len(states)}")
    return lambda: torch.cuda.set_rng_state_all(states)


def _mps_action(saved: Any) -> Action:
    state = _checked_bytes(saved)
    if not torch.backends.mps.is_available():
        raise ValueError("found the state of an MPS device, and there is no such device")
    return lambda: torch.mps.set_rng_state(state)


def _checked_bytes(saved: Any) -> torch.Tensor:
    saved = torch.from_numpy(saved.copy()) if type(saved) is np.ndarray else saved
    if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
        raise TypeError(f"expected a tensor of bytes, found {type_name(saved)}")
    return saved.cpu()


RNG_ACTIONS: Final[Mapping[str, Callable[[Any], Action]]] = {
    "torch": lambda state: generator_action(torch.default_generator, state),
    "cuda": _cuda_action,
    "mps": _mps_action,
}
"""Name of each of torch's global generators to the function that makes the action that sets it."""
