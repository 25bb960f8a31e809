"""Objects of flax.nnx, which are the state that they hold. flax is never imported here: who has none uses none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def is_graph(value: Any) -> bool:
    """Say whether a value is a module, an optimizer or the like: an object that may hold others more than once."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Pytree) and not isinstance(value, nnx.State | nnx.Variable)


def is_variable(value: Any) -> bool:
    """Say whether a value is a variable; as data it is what it holds."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Variable)


def split(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the state of an object, and a function that makes a new object of another state."""
    nnx = sys.modules["flax.nnx"]
    definition, state = nnx.split(value)
    return state, lambda other: nnx.merge(definition, other)
