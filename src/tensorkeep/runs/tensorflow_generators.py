"""TensorFlow's random generators (imports TensorFlow)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import tensorflow as tf

from tensorkeep.runs._actions import Action
from tensorkeep.runs._slots import as_array


def generator_state(generator: Any) -> dict[str, Any]:
    """Return the state of a generator, and the number of its algorithm."""
    return {"algorithm": int(generator.algorithm), "state": generator.state.value()}


def generator_action(generator: Any, saved: Any) -> Action:
    """Check a state, and return the action that sets a generator to it."""
    if not isinstance(saved, Mapping) or saved.keys() != {"algorithm", "state"}:
        raise TypeError("expected a dict with algorithm and state")
    state = as_array(saved["state"])
    own = generator.state
    if saved["algorithm"] != int(generator.algorithm):
        raise ValueError(f"expected algorithm {int(generator.algorithm)}, found {saved['algorithm']!r:.100}")
    if state is None or state.shape != tuple(own.shape) or state.dtype.name != own.dtype.name:
        raise ValueError(f"expected {own.dtype.name} {list(own.shape)} as state")
    return lambda: own.assign(tf.constant(state))


def capture_rng() -> dict[str, Any]:
    """Return the state of the global generator."""
    return {"tensorflow": generator_state(tf.random.get_global_generator())}


RNG_ACTIONS: Final[Mapping[str, Callable[[Any], Action]]] = {
    "tensorflow": lambda saved: generator_action(tf.random.get_global_generator(), saved)
}
"""The name of the global generator to the function that makes the action that sets it."""
