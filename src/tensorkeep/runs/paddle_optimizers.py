"""Paddle's optimizers, learning rate schedulers and gradient scalers (imports Paddle).

Paddle names parameters by counters of the process, `linear_0.w_0`, and the accumulators of its optimizers after
them. So the state of an optimizer has the names of its parameters beside it, in their order, and is renamed for an
optimizer whose parameters have other names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import paddle

from tensorkeep.arrays import convert_to
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.runs._actions import Action
from tensorkeep.runs._slots import Array, Slot, as_array, prepare_slots
from tensorkeep.texts import listed

_SCHEDULE: Final = "LR_Scheduler"
_MASTER_WEIGHTS: Final = "master_weights"
_MAX_NAME_LENGTH: Final = 1000
"""Characters of a parameter's name."""


class PaddleOptimizer:
    """An optimizer: its accumulators and the state of its learning rate."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._kind = type(optimizer).__name__
        self._parameters = list(_parameters_of(optimizer._parameter_list))
        self._names = [parameter.name for parameter in self._parameters]

    def state(self) -> dict[str, Any]:
        """Return accumulators and master weights by the names of Paddle, and the state of the learning rate."""
        held = dict(self._optimizer.state_dict())
        schedule = held.pop(_SCHEDULE, None)
        masters = dict(held.pop(_MASTER_WEIGHTS, {}))
        return {
            "class": self._kind,
            "parameters": self._names,
            "accumulators": {name: tensor.detach() for name, tensor in held.items()},
            "master_weights": {name: tensor.detach() for name, tensor in masters.items()},
            "schedule": schedule,
        }

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        """Check that a state fits, and yield the actions that load it."""
        self._check(saved, part)
        accumulators, masters = (
            self._renamed(saved[group], saved["parameters"]) for group in ("accumulators", "master_weights")
        )
        self._check_tensors(accumulators, f"{part}.accumulators", self._accumulators(), strict=strict)
        self._check_tensors(masters, f"{part}.master_weights", self._masters(masters), strict=True)
        schedule = self._optimizer._learning_rate
        if isinstance(schedule, paddle.optimizer.lr.LRScheduler):
            yield from Stated(schedule).prepare(saved["schedule"], f"{part}.schedule", strict=strict)
        elif saved["schedule"] is not None:
            raise StateDictMismatchError(
                f"{part} has a learning rate scheduler in the checkpoint, and none here", hint="Nothing was changed"
            )
        yield partial(self._load, accumulators, masters)

    def _accumulators(self) -> list[Slot] | None:
        """Return the accumulators; None before the first step, which makes them."""
        held = self._optimizer.state_dict()
        return [slot_of(name, held[name]) for name in held if name not in {_SCHEDULE, _MASTER_WEIGHTS}] or None

    def _masters(self, names: Iterable[str]) -> list[Slot]:
        """Return what the master weights of these parameters must be."""
        shapes = {parameter.name: tuple(parameter.shape) for parameter in self._parameters}
        return [Slot(name, shapes[name], "float32", list, list) for name in names if name in shapes]

    def _check_tensors(self, saved: Mapping[str, Any], part: str, slots: list[Slot] | None, *, strict: bool) -> None:
        """Check tensors that Paddle assigns all at once; of accumulators that do not exist, it checks the shapes."""
        if slots is not None:
            deque(prepare_slots(slots, saved, part, self._kind, strict=strict), maxlen=0)
        strange = [
            name
            for name, tensor in saved.items()
            if as_array(tensor) is None or (strict and not name.startswith(tuple(self._names)))
        ]
        if strange:
            raise StateDictMismatchError(
                f"{part} does not fit this {self._kind}: {listed(strange)}",
                expected="tensors that are named after parameters",
                hint="Nothing was changed",
                unexpected=strange,
            )

    def _check(self, saved: Any, part: str) -> None:
        """Refuse what `state` does not make, and the state of another kind of optimizer or number of parameters."""
        expected = {"class", "parameters", "accumulators", "master_weights", "schedule"}
        if not isinstance(saved, Mapping) or saved.keys() != expected:
            raise StateDictMismatchError(
                f"{part} is not the state of an optimizer as capture makes it",
                found=listed(saved) if isinstance(saved, Mapping) else type(saved).__name__,
                hint="Nothing was changed",
            )
        names = saved["parameters"]
        here, there = (self._kind, len(self._names)), (saved["class"], len(names) if _is_names(names) else None)
        if here != there or not all(isinstance(saved[key], Mapping) for key in ("accumulators", "master_weights")):
            raise StateDictMismatchError(
                f"{part} is the state of another optimizer",
                expected="{} of {} parameters".format(*here),
                found="{} of {} parameters".format(*there),
                hint="Nothing was changed",
            )

    def _renamed(self, tensors: Mapping[Any, Any], names: list[str]) -> dict[str, Any]:
        """Return tensors that are named after parameters under the names that these have here."""
        here = dict(zip(names, self._names, strict=True))
        lengths = sorted({len(name) for name in names}, reverse=True)
        renamed = {}
        for name, tensor in tensors.items():
            text = str(name)
            ends = (length for length in lengths if text[length : length + 1] in {"", "_"})
            found = next((length for length in ends if text[:length] in here), None)
            renamed[text if found is None else here[text[:found]] + text[found:]] = tensor
        return renamed

    def _load(self, accumulators: Mapping[str, Any], masters: Mapping[str, Any]) -> None:
        state: dict[str, Any] = {name: _own_tensor(value) for name, value in accumulators.items()}
        if masters:
            state[_MASTER_WEIGHTS] = {name: _own_tensor(value) for name, value in masters.items()}
            for name, tensor in state[_MASTER_WEIGHTS].items():
                tensor.name = f"{name}_fp32_master_0"  # its accumulators are found by this name
        schedule = self._optimizer._learning_rate
        if isinstance(schedule, paddle.optimizer.lr.LRScheduler):  # loaded before, and wanted by Paddle again
            state[_SCHEDULE] = schedule.state_dict()
        self._optimizer.set_state_dict(state)


class Stated:
    """An object of Paddle with a state dict of plain data: a learning rate scheduler, a gradient scaler."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def state(self) -> Any:
        """Return its state dict."""
        return self._value.state_dict()

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:  # noqa: ARG002
        """Check that a state dict has the same members, and yield the action that loads it."""
        own = self._value.state_dict()
        others = _otherwise(own, saved)
        if others:
            raise StateDictMismatchError(
                f"{part} is not the state of this {type(self._value).__name__}: {listed(others)}",
                expected=listed(own) or "nothing",
                found=listed(saved) if isinstance(saved, Mapping) else type(saved).__name__,
                hint="Nothing was changed",
            )
        load = getattr(self._value, "set_state_dict", None) or self._value.load_state_dict
        yield partial(load, saved)


def _parameters_of(groups: Any) -> Iterator[Any]:
    """Yield the parameters of an optimizer, which may be in groups with settings."""
    for item in groups or ():
        if isinstance(item, Mapping):
            yield from item["params"]
        else:
            yield item


def _otherwise(own: Mapping[str, Any], saved: Any) -> list[str]:
    """Return the keys of a state dict that another lacks, or has with a value of another kind, or has alone."""
    if not isinstance(saved, Mapping):
        return list(own) or ["no state"]
    return [
        str(key)
        for key in {**own, **saved}
        if key not in own or key not in saved or not _is_alike(own[key], saved[key])
    ]


def _is_alike(own: Any, saved: Any) -> bool:
    if own is None or saved is None:  # set by the first step
        return True
    numbers = (bool, int, float, np.generic, np.ndarray, paddle.Tensor)
    if isinstance(own, Mapping):
        return not _otherwise(own, saved)
    return isinstance(saved, numbers) if isinstance(own, numbers) else isinstance(saved, type(own))


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(name, str) and len(name) <= _MAX_NAME_LENGTH for name in value
    )


def slot_of(name: str, tensor: Any) -> Slot:
    """Return a tensor of Paddle as a variable that can be assigned."""
    dtype = str(tensor.dtype).rpartition(".")[2]
    address = tensor.data_ptr() if tensor.size else 0
    return Slot(name, tuple(tensor.shape), dtype, tensor.detach, partial(_assign, tensor), address)


def _assign(tensor: Any, array: Array) -> None:
    with paddle.no_grad():
        paddle.assign(convert_to("paddle", array), output=tensor)


def _own_tensor(value: Any) -> Any:
    """Return a tensor with memory of its own."""
    return convert_to("paddle", as_array(value)).clone()
