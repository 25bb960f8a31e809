"""States of torch's optimizers, held against the optimizer before it is loaded.

torch itself takes the state of any optimizer that has as many parameters. What follows fails in the first step, or
goes on with the moments of other parameters. What is refused here would certainly do one of these; optimizers that
load or step in a way of their own know better, and only what holds for all is asked of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import chain
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
"""Class to the tensors that it keeps of each parameter, in the parameter's shape unless `_SHAPES` has another."""

_SHAPES: Final[dict[str, Callable[[_Shape], _Shape]]] = {
    "row_var": lambda shape: (*shape[:-1], 1),
    "col_var": lambda shape: (*shape[:-2], 1, *shape[-1:]),
}
"""State tensor to the shape that it has for a parameter."""

_ALL_STATES: Final = frozenset(chain.from_iterable(_STATES.values()))

_WAYS: Final = frozenset({
    *("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay", "adjust_lr_fn")
})
"""Settings that versions of torch added, and that it sets where a checkpoint has none."""

_SETTINGS: Final = frozenset(
    chain.from_iterable(inspect.signature(cls).parameters for cls in _STATES)  # what their constructors take
) - {"params", *_WAYS}
"""Settings by which torch's optimizers differ."""

_without_wrappers = re.compile(r"\A(?:module\.)+|(?:(?<=\.)|\A)_orig_mod\.").sub


def check_optimizer(optimizer: optim.Optimizer, saved: Any, part: str, *, strict: bool) -> None:
    """Make sure that a state fits an optimizer, as far as that can be known without loading it."""
    optimizer = bare_optimizer(optimizer)
    if not _is_state(saved):
        raise StateDictMismatchError(
            f"{part} is not the state of an optimizer of torch",
            expected="a dict with state and param_groups",
            found=", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__,
            hint="Nothing was changed",
        )
    own = [len(group["params"]) for group in optimizer.param_groups]
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    if own != theirs:
        raise StateDictMismatchError(
            f"{part} does not fit {type(optimizer).__name__}: its groups have other numbers of parameters",
            expected=str(own),
            found=str(theirs),
            hint="Nothing was changed",
        )
    if strict and _loads_as_usual(optimizer):
        _check_groups(optimizer, saved, part)
        if _steps_as_torch(optimizer):
            _check_states(optimizer, saved, part)


def load_optimizer(optimizer: optim.Optimizer, saved: dict[str, Any], *, strict: bool) -> None:
    """Load a state into an optimizer, with memory of its own.

    torch gives all tensors of the state the dtype of their parameters, as its own optimizers have them. Others keep
    moments of F32 for parameters of BF16, or integers, and would not go on from there.
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
        here, there = state.get(name), saved[name]
        if isinstance(here, torch.Tensor) and isinstance(there, torch.Tensor) and here.dtype != there.dtype:
            state[name] = there.detach().to(device=here.device, copy=True)


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
    """Whether an optimizer takes what its state dict gives, and nothing else."""
    return (
        type(optimizer).load_state_dict is optim.Optimizer.load_state_dict
        and not optimizer._optimizer_load_state_dict_pre_hooks
        and not optimizer._optimizer_load_state_dict_post_hooks
    )


def _steps_as_torch(optimizer: optim.Optimizer) -> bool:
    """Whether it is one of torch's, or goes on with its state as one of those does."""
    return type(optimizer).step.__module__.startswith("torch.optim.") and _kept_by(optimizer) is not None


def _kept_by(optimizer: optim.Optimizer) -> frozenset[str] | None:
    return next((_STATES[cls] for cls in type(optimizer).__mro__ if cls in _STATES), None)


def _check_groups(optimizer: optim.Optimizer, saved: Mapping[str, Any], part: str) -> None:
    for number, (own, theirs) in enumerate(zip(optimizer.param_groups, saved["param_groups"], strict=True)):
        place = f"{part}.param_groups.{number}"
        if "param_names" in own and "param_names" in theirs:
            _check_param_names(own["param_names"], theirs["param_names"], place)
        expected = optimizer.defaults.keys() - {"params", *_WAYS}
        foreign = (_SETTINGS & theirs.keys()) - optimizer.defaults.keys() - own.keys()
        if _steps_as_torch(optimizer):
            is_other = bool(foreign or (_SETTINGS & expected) - theirs.keys())
        else:
            is_other = bool(foreign and expected - theirs.keys())
        if is_other:
            found = ", ".join(sorted((_SETTINGS | expected) & theirs.keys())) or "none"
            _refuse(optimizer, part, f"{found} in {place}", expected=f"settings {', '.join(sorted(expected))}")
        decoupled = [bool(group.get("decoupled_weight_decay")) for group in (own, theirs)]
        if isinstance(optimizer, optim.Adam) and "decoupled_weight_decay" in theirs and decoupled[0] != decoupled[1]:
            _refuse(
                optimizer,
                part,
                f"{place}.decoupled_weight_decay = {decoupled[1]}, as AdamW has it and Adam has not",
                expected=f"{decoupled[0]}",
            )


def _check_param_names(own: Any, theirs: Any, place: str) -> None:
    if list(map(_plain, own)) == list(map(_plain, theirs)):
        return
    here, there = next(
        ((a, b) for a, b in zip(own, theirs, strict=False) if _plain(a) != _plain(b)), ("nothing", "nothing")
    )
    raise StateDictMismatchError(
        f"{place} is of other parameters, or of the same in another order",
        expected=f"{here}",
        found=f"{there} in its place",
        hint="Nothing was changed. Make the optimizer with the parameters in the order in which they were saved;"
        " strict=False loads by place, whatever the names",
    )


def _plain(name: Any) -> Any:
    """Return the name that a parameter has when nothing wraps the model."""
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
                    optimizer, part, f"{place}, which it does not keep", expected=", ".join(sorted(kept)) or "none"
                )
            shape = _SHAPES.get(name, tuple)(tuple(parameter.shape))
            if tuple(tensor.shape) != shape:
                _refuse(
                    optimizer,
                    part,
                    f"{place} of shape {list(tensor.shape)}",
                    expected=f"{list(shape)}, as the parameter in this place needs it",
                )


def _parameters(optimizer: optim.Optimizer, saved: Mapping[str, Any]) -> Iterator[tuple[Any, torch.Tensor]]:
    """Give the key that each parameter has in a state, and the parameter."""
    keys = chain.from_iterable(group["params"] for group in saved["param_groups"])
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    for key, parameter in zip(keys, parameters, strict=True):
        if not nn.parameter.is_lazy(parameter):
            yield key, parameter


def _name(optimizer: optim.Optimizer) -> str:
    return type(optimizer).__name__


def _refuse(optimizer: optim.Optimizer, part: str, found: str, *, expected: str) -> NoReturn:
    raise StateDictMismatchError(
        f"{part} does not fit {_name(optimizer)}: it is of another optimizer, or of other parameters",
        expected=expected,
        found=found,
        hint="Nothing was changed. Make the optimizer as it was made for the checkpoint;"
        " strict=False loads what torch takes",
    )
