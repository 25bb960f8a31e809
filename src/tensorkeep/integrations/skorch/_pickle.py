"""The data in a pickled net, without running anything.

skorch stores modules, criteria and optimizers in an inner pickle. Their state dicts are extracted, as are the history
and the classes. The net itself, its arguments and its callbacks are only names of code in the pickle: they are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.errors import TensorkeepError, UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.integrations.skorch._names import HISTORY, TRAINING
from tensorkeep.kinds.pickles import open_pickle

_INNER: Final = "__cuda_dependent_attributes__"


def is_net(value: Any) -> bool:
    """Say whether the value of a pickle is a net of skorch."""
    return isinstance(value, Unknown) and isinstance(value.state, Mapping) and _INNER in value.state


def parts_of_net(net: Unknown, path: str) -> dict[str, Any]:
    """Return the states of a net's parts by name."""
    try:
        with open_pickle(net.state[_INNER], framework="torch") as inner:
            attributes = inner.load_tree()
    except TensorkeepError as error:
        raise error.with_fields(path=path) from None
    # Attributes without a final underscore are arguments of the net, which may be modules too
    created = {name.removesuffix("_"): value for name, value in attributes.items() if name.endswith("_")}
    states = {name: _state_of(value) for name, value in created.items()}
    parts: dict[str, Any] = {name: state for name, state in states.items() if state is not None}
    history = net.state.get("history_")
    if isinstance(history, Unknown):
        parts[HISTORY] = list(history.items or ())
    if net.state.get("classes_inferred_") is not None:
        parts[TRAINING] = {"classes": net.state["classes_inferred_"]}
    return parts


def _state_of(value: Any) -> dict[str, Any] | None:
    """Return the state dict of a module or an optimizer, or None for anything else."""
    state = value.state if isinstance(value, Unknown) else None
    if not isinstance(state, Mapping):
        return None
    if _is_module(state):
        return _state_dict(state, "", ())
    return _optimizer_state(state) if {"state", "param_groups"} <= state.keys() else None


def _is_module(state: Any) -> bool:
    return isinstance(state, Mapping) and {"_parameters", "_buffers", "_modules"} <= state.keys()


def _state_dict(state: Mapping[str, Any], prefix: str, parents: tuple[int, ...]) -> dict[str, Any]:
    """Return the tensors of a module under the names in its state dict."""
    if id(state) in parents:
        raise UnsupportedError("a module in the pickle contains itself", found=prefix)
    hidden = state.get("_non_persistent_buffers_set") or ()
    buffers = {name: tensor for name, tensor in state["_buffers"].items() if name not in hidden}
    tensors = {**state["_parameters"], **buffers}
    found = {prefix + name: tensor for name, tensor in tensors.items() if tensor is not None}
    for name, module in state["_modules"].items():
        if isinstance(module, Unknown) and _is_module(module.state):
            found |= _state_dict(module.state, f"{prefix}{name}.", (*parents, id(state)))
    return found


def _optimizer_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state dict of an optimizer, with numbers in the place of parameters."""
    parameters = [parameter for group in state["param_groups"] for parameter in group["params"]]
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    groups = [
        {**group, "params": [numbers[id(parameter)] for parameter in group["params"]]}
        for group in state["param_groups"]
    ]
    return {
        "state": {numbers[id(key)]: value for key, value in state["state"].items() if id(key) in numbers},
        "param_groups": groups,
    }
