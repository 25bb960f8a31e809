"""The parts of a net that have a state, and their states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorkeep.errors import StateError
from tensorkeep.torch import capture


def components(net: Any) -> dict[str, Any]:
    """Return all modules, criteria and optimizers of a net that have a state, by name."""
    names = (*net._modules, *net._criteria, *net._optimizers)
    found = {name: getattr(net, f"{name}_", None) for name in names}
    return {name: item for name, item in found.items() if _has_state(item)}


def component(net: Any, part: str) -> Any:
    """Return a part of a net that has a state."""
    found = getattr(net, f"{part}_", None)
    if not _has_state(found):
        raise StateError(
            f"the net has no part {part!r}",
            expected=f"net.{part}_ with a state_dict(), such as a module or an optimizer",
            found="None" if found is None else f"{type(found).__module__}.{type(found).__qualname__}",
            hint=f"It has {', '.join(components(net)) or 'none'}",
        )
    return found


def states_of(net: Any, parts: Iterable[str]) -> dict[str, Any]:
    """Return the states of parts; tensors are the net's own, not copies."""
    wanted = {part: component(net, part) for part in parts}
    states: dict[str, Any] = capture(model=wanted, rng=False)["model"]
    return states


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and not isinstance(value, type)
