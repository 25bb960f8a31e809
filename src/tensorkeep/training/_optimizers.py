"""States of torch's optimizers, checked before they are loaded.

torch accepts the state of any optimizer with the same number of parameters. The first step then fails, or continues
with the moments of other parameters. Only states that certainly do one of these are refused here; optimizers that
override loading or stepping know better, and only get the checks that apply to every optimizer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import chain, zip_longest
from typing import Any, Final, NoReturn

import torch
from torch import nn, optim

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.training._memory import own_memory
from tensorkeep.training._wrappers import bare_optimizer

_Shape = tuple[int, ...]

_STATES: Final[dict[type, frozenset[str]]] = {
    optim.Adadelta: frozenset({"square_avg", "acc_delta"}),
    optim.Adafactor: frozenset({"variance", "row_var", "col_var"}),
    optim.Adagrad: frozenset({"sum"}),
    optim.Adam: frozenset({"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    optim.Adamax: frozenset({"exp_avg", "exp_inf"}),
    optim.ASGD: frozenset({"ax"}),
    optim.LBFGS: frozenset(),
    optim.Muon: frozenset({"momentum_buffer"}),
    optim.NAdam: frozenset({"exp_avg", "exp_avg_sq"}),
    optim.RAdam: frozenset({"exp_avg", "exp_avg_sq"}),
    optim.RMSprop: frozenset({"square_avg", "momentum_buffer", "grad_avg"}),
    optim.Rprop: frozenset({"prev", "step_size"}),
    optim.SGD: frozenset({"momentum_buffer"}),
    optim.SparseAdam: frozenset({"exp_avg", "exp_avg_sq"}),
}
"""Class to the tensors that it keeps for each parameter, in the parameter's shape unless `_SHAPES` has another."""

_SHAPES: Final[dict[str, Callable[[_Shape], _Shape]]] = {
    "row_var": lambda shape: (*shape[:-1], 1),
    "col_var": lambda shape: (*shape[:-2], 1, *shape[-1:]),
}
"""State tensor to a function from the parameter's shape to its own."""

_ALL_STATES: Final = frozenset(chain.from_iterable(_STATES.values()))

_OPTIONAL_SETTINGS: Final = frozenset({
    *("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay", "adjust_lr_fn")
})
"""Settings that newer versions of torch added; torch itself fills them in if a checkpoint lacks them."""

_SETTINGS: Final = frozenset(
    chain.from_iterable(inspect.signature(cls).parameters for cls in _STATES)  # arguments of their constructors
) - {"params", *_OPTIONAL_SETTINGS}
"""Settings that distinguish torch's optimizers."""

_without_wrappers = re.compile(r"\A(?:module\.)+|(?:(?<=\.)|\A)_orig_mod\.").sub


def check_optimizer(optimizer: optim.Optimizer, saved: Any, part: str, *, strict: bool) -> None:
    """Check that a state fits an optimizer, as far as possible without loading it."""
    optimizer = bare_optimizer(optimizer)
    if not _is_state(saved):
        raise StateDictMismatchError(
            f"{part} is not the state of an optimizer of torch",
            expected="a dict with state and param_groups",
            found=", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__,
            hint="Nothing was changed",
        )
    expected = [len(group["params"]) for group in optimizer.param_groups]
    found = [len(group["params"]) for group in saved["param_groups"]]
    if expected != found:
        raise StateDictMismatchError(
            f"{part} does not fit {type(optimizer).__name__}: its groups have other numbers of parameters",
            expected=str(expected),
            found=str(found),
            hint="Nothing was changed",
        )
    if strict and _loads_as_usual(optimizer):
        _check_groups(optimizer, saved, part)
        if _steps_as_torch(optimizer):
            _check_states(optimizer, saved, part)


def load_optimizer(optimizer: optim.Optimizer, saved: dict[str, Any], *, strict: bool) -> None:
    """Load a state into an optimizer, in memory of its own.

    torch casts all tensors of the state to the dtype of their parameters, which is right for its own optimizers.
    Others keep F32 moments of BF16 parameters, or integers, so they get the saved dtype back.
    """
    optimizer.load_state_dict(saved)
    optimizer = bare_optimizer(optimizer)
    for parameter, state in optimizer.state.items():
        optimizer.state[parameter] = own_memory(state)
    if strict and _loads_as_usual(optimizer) and not _steps_as_torch(optimizer):
        for key, parameter in _parameters(optimizer, saved):
            _keep_dtypes(optimizer.state.get(parameter), saved["state"].get(key))


def _keep_dtypes(state: Any, saved: Any) -> None:
    for name in saved if isinstance(saved, Mapping) and isinstance(state, MutableMapping) else ():
        loaded, original = state.get(name), saved[name]
        if isinstance(loaded, torch.Tensor) and isinstance(original, torch.Tensor) and loaded.dtype != original.dtype:
            state[name] = original.detach().to(device=loaded.device, copy=True)


def _is_state(saved: Any) -> bool:
    if not isinstance(saved, Mapping) or not saved.keys() >= {"state", "param_groups"}:
        return False
    groups = saved["param_groups"]
    return (
        isinstance(saved["state"], Mapping)
        and isinstance(groups, list | tuple)
        and all(isinstance(group, Mapping) and isinstance(group.get("params"), list | tuple) for group in groups)
    )


def _loads_as_usual(optimizer: optim.Optimizer) -> bool:
    """Whether an optimizer loads its state as torch does."""
    return (
        type(optimizer).load_state_dict is optim.Optimizer.load_state_dict
        and not optimizer._optimizer_load_state_dict_pre_hooks
        and not optimizer._optimizer_load_state_dict_post_hooks
    )


def _steps_as_torch(optimizer: optim.Optimizer) -> bool:
    """Whether an optimizer is one of torch's, or uses its state in the same way."""
    return type(optimizer).step.__module__.startswith("torch.optim.") and _kept_by(optimizer) is not None


def _kept_by(optimizer: optim.Optimizer) -> frozenset[str] | None:
    return next((_STATES[cls] for cls in type(optimizer).__mro__ if cls in _STATES), None)


def _check_groups(optimizer: optim.Optimizer, saved: Mapping[str, Any], part: str) -> None:
    for number, (own, group) in enumerate(zip(optimizer.param_groups, saved["param_groups"], strict=True)):
        place = f"{part}.param_groups.{number}"
        if "param_names" in own and "param_names" in group:
            _check_param_names(own["param_names"], group["param_names"], place)
        expected = optimizer.defaults.keys() - {"params", *_OPTIONAL_SETTINGS}
        foreign = (_SETTINGS & group.keys()) - optimizer.defaults.keys() - own.keys()
        if _steps_as_torch(optimizer):
            is_other = bool(foreign or (_SETTINGS & expected) - group.keys())
        else:
            is_other = bool(foreign and expected - group.keys())
        if is_other:
            found = ", ".join(sorted((_SETTINGS | expected) & group.keys())) or "none"
            _refuse(optimizer, part, f"{found} in {place}", expected=f"settings {', '.join(sorted(expected))}")
        decoupled = [bool(settings.get("decoupled_weight_decay")) for settings in (own, group)]
        if isinstance(optimizer, optim.Adam) and "decoupled_weight_decay" in group and decoupled[0] != decoupled[1]:
            _refuse(
                optimizer,
                part,
                f"{place}.decoupled_weight_decay = {decoupled[1]}, which tells AdamW from Adam",
                expected=f"{decoupled[0]}",
            )


def _check_param_names(expected: Any, found: Any, place: str) -> None:
    pairs = [(_plain(a), _plain(b)) for a, b in zip_longest(expected, found, fillvalue="nothing")]
    different = next(((a, b) for a, b in pairs if a != b), None)
    if different is None:
        return
    raise StateDictMismatchError(
        f"{place} has other parameters, or the same ones in another order",
        expected=f"{different[0]}",
        found=f"{different[1]} in its place",
        hint="Nothing was changed. Create the optimizer with the parameters in the order in which they were saved;"
        " strict=False loads them by position, whatever their names",
    )


def _plain(name: Any) -> Any:
    """Return the name that a parameter has without wrappers around the model."""
    return _without_wrappers("", name) if isinstance(name, str) else name


def _check_states(optimizer: optim.Optimizer, saved: Mapping[str, Any], part: str) -> None:
    kept = _kept_by(optimizer) or frozenset()
    for key, parameter in _parameters(optimizer, saved):
        state = saved["state"].get(key)
        for name in _ALL_STATES & state.keys() if isinstance(state, Mapping) else ():
            tensor, place = state[name], f"{part}.state.{key}.{name}"
            if not isinstance(tensor, torch.Tensor):
                continue
            if name not in kept:
                _refuse(
                    optimizer,
                    part,
                    f"{place}, which this optimizer does not have",
                    expected=", ".join(sorted(kept)) or "none",
                )
            shape = _SHAPES.get(name, tuple)(tuple(parameter.shape))
            if tuple(tensor.shape) != shape:
                _refuse(
                    optimizer,
                    part,
                    f"{place} of shape {list(tensor.shape)}",
                    expected=f"{list(shape)}, for the parameter in this position",
                )


def _parameters(optimizer: optim.Optimizer, saved: Mapping[str, Any]) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield each parameter, and its key in the saved state."""
    keys = chain.from_iterable(group["params"] for group in saved["param_groups"])
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    for key, parameter in zip(keys, parameters, strict=True):
        if not nn.parameter.is_lazy(parameter):
            yield key, parameter


def _refuse(optimizer: optim.Optimizer, part: str, found: str, *, expected: str) -> NoReturn:
    raise StateDictMismatchError(
        f"{part} does not fit {type(optimizer).__name__}: it belongs to another optimizer, or to other parameters",
        expected=expected,
        found=found,
        hint="Nothing was changed. Create the optimizer as it was for the checkpoint;"
        " strict=False loads what torch accepts",
    )
