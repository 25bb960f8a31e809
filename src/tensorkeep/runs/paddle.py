"""Paddle's layers, optimizers and learning rates, and its random generators (imports Paddle).

Paddle names parameters by counters of the process, `linear_0.w_0`, and the accumulators of its optimizers after
them. So the state of an optimizer has the names of its parameters beside it, in their order, and is renamed for an
optimizer whose parameters have other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import paddle

from tensorkeep.arrays import moved
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.phrases import listed
from tensorkeep.runs._actions import Action
from tensorkeep.runs._run import Stateful, capture_run, restore_run
from tensorkeep.runs._slots import Array, Slot, as_array, prepare_slots, state_of_slots
from tensorkeep.state import Classes
from tensorkeep.transport import Openable

_N_WORDS: Final = 312
"""Words of the generator, a 64-bit Mersenne Twister; the place of the next one follows them."""

_SCHEDULE: Final = "LR_Scheduler"
_MASTER_WEIGHTS: Final = "master_weights"


class _Layer:
    """A layer, seen as the tensors of its state dict."""

    def __init__(self, layer: Any) -> None:
        self._kind = type(layer).__name__
        self._slots = [_slot(name, tensor) for name, tensor in layer.state_dict().items()]

    def state(self) -> dict[str, Any]:
        return state_of_slots(self._slots)

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        return prepare_slots(self._slots, saved, part, self._kind, strict=strict)


class _Optimizer:
    """An optimizer: its accumulators and the state of its learning rate."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._kind = type(optimizer).__name__
        self._names = [parameter.name for parameter in optimizer._parameter_list]

    def state(self) -> dict[str, Any]:
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
        self._check(saved, part)
        accumulators, masters = (
            self._renamed(saved[group], saved["parameters"]) for group in ("accumulators", "master_weights")
        )
        held = self._optimizer.state_dict()
        own = {name: tensor for name, tensor in held.items() if name not in {_SCHEDULE, _MASTER_WEIGHTS}}
        known = dict(zip(self._names, self._optimizer._parameter_list, strict=True))
        slots = [_slot(name, tensor) for name, tensor in own.items()]
        for _ in prepare_slots(slots, accumulators, f"{part}.accumulators", self._kind, strict=strict) if own else ():
            pass  # assigned all at once
        slots = [Slot(name, tuple(known[name].shape), "float32", list, list) for name in masters if name in known]
        for _ in prepare_slots(slots, masters, f"{part}.master_weights", self._kind, strict=True):
            pass
        schedule = self._optimizer._learning_rate
        if isinstance(schedule, paddle.optimizer.lr.LRScheduler):
            yield from _Stated(schedule).prepare(saved["schedule"], f"{part}.schedule", strict=strict)
        elif saved["schedule"] is not None:
            raise StateDictMismatchError(
                f"{part} has a learning rate scheduler in the checkpoint, and none here", hint="Nothing was changed"
            )
        yield partial(self._load, accumulators, masters)

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
        longest = max((name.count("_") for name in names), default=0)
        renamed = {}
        for name, tensor in tensors.items():
            pieces = str(name).split("_")
            heads = ("_".join(pieces[:n]) for n in range(min(len(pieces), longest + 1), 0, -1))
            head = next((head for head in heads if head in here), None)
            renamed[str(name) if head is None else here[head] + str(name).removeprefix(head)] = tensor
        return renamed

    def _load(self, accumulators: Mapping[str, Any], masters: Mapping[str, Any]) -> None:
        state: dict[str, Any] = {name: _own_tensor(value) for name, value in accumulators.items()}
        if masters:
            state[_MASTER_WEIGHTS] = {name: _own_tensor(value) for name, value in masters.items()}
        schedule = self._optimizer._learning_rate
        if isinstance(schedule, paddle.optimizer.lr.LRScheduler):  # loaded before, and wanted by Paddle again
            state[_SCHEDULE] = schedule.state_dict()
        self._optimizer.set_state_dict(state)


class _Stated:
    """An object of Paddle with a state dict of plain data: a learning rate scheduler, a gradient scaler."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def state(self) -> Any:
        return self._value.state_dict()

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:  # noqa: ARG002
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
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _slot(name: str, tensor: Any) -> Slot:
    dtype = str(tensor.dtype).rpartition(".")[2]
    address = tensor.data_ptr() if tensor.size else 0
    return Slot(name, tuple(tensor.shape), dtype, tensor.detach, partial(_assign, tensor), address)


def _assign(tensor: Any, array: Array) -> None:
    with paddle.no_grad():
        paddle.assign(moved("paddle", "cpu", array), output=tensor)


def _own_tensor(value: Any) -> Any:
    """Return a tensor with memory of its own."""
    return moved("paddle", "cpu", as_array(value)).clone()


def _generator_state(state: Any) -> dict[str, Any]:
    """Return a generator's state, with the words of its Mersenne Twister as an array."""
    device, seed, offset, words = state.__getstate__()
    return {"device": device, "seed": seed, "offset": offset, "words": np.array(bytes(words).split(), np.uint64)}


def _generators_action(device: str, saved: Any) -> Action:
    """Check the states of the generators of a kind of device, and return the action that sets them."""
    own = paddle.get_rng_state(device)
    if not isinstance(saved, list | tuple) or len(saved) != len(own):
        raise ValueError(f"expected states of {len(own)} generators")
    states = [_made(type(now), state) for now, state in zip(own, saved, strict=True)]
    return lambda: paddle.set_rng_state(states, device)


def _made(kind: Any, saved: Any) -> Any:
    if not isinstance(saved, Mapping) or saved.keys() != {"device", "seed", "offset", "words"}:
        raise TypeError("expected a dict with device, seed, offset and words")
    words = as_array(saved["words"])
    numbers = [saved[key] for key in ("device", "seed", "offset")]
    if words is None or words.shape != (_N_WORDS + 1,) or words.dtype.name != "uint64" or words[-1] > _N_WORDS:
        raise ValueError(f"expected {_N_WORDS} words, and the place of the next")
    if not all(type(number) is int for number in numbers):
        raise TypeError("expected device, seed and offset as integers")
    state = kind.__new__(kind)
    state.__setstate__((*numbers, list(" ".join(map(str, words.tolist())).encode())))
    return state


def _devices() -> list[str]:
    return ["cpu", "gpu"] if paddle.device.cuda.device_count() else ["cpu"]


class _Paddle:
    """What `capture` and `restore` need to know of Paddle."""

    framework = "paddle"
    expected = "a layer, optimizer, learning rate scheduler or gradient scaler of Paddle"

    def find(self, value: Any) -> Stateful | None:
        if isinstance(value, paddle.nn.Layer):
            return _Layer(value)
        if isinstance(value, paddle.optimizer.Optimizer):
            return _Optimizer(value)
        return _Stated(value) if isinstance(value, paddle.optimizer.lr.LRScheduler | paddle.amp.GradScaler) else None

    def capture_rng(self) -> dict[str, Any]:
        states = {device: paddle.get_rng_state(device) for device in _devices()}
        return {f"paddle_{device}": [_generator_state(one) for one in several] for device, several in states.items()}

    def rng_actions(self) -> Mapping[str, Callable[[Any], Action]]:
        return {f"paddle_{device}": partial(_generators_action, device) for device in ("cpu", "gpu")}


def capture(*, model: Any = None, optimizer: Any = None, rng: bool = True, **extra: Any) -> dict[str, Any]:
    """Gather everything that a run of Paddle needs to continue, as nested data that every save function accepts.

        state = capture(model=layer, optimizer=optimizer, step=500)
        tensorkeep.save(state, "step-500.safetensors")

    Tensors are the run's own, not copies: save the state before training continues, or keep `copy.deepcopy` of it.

    Args:
        model: A `paddle.nn.Layer`, or a dict or list of several: what its `state_dict()` has.
        optimizer: Its optimizer, or several: accumulators, master weights, and the learning rate scheduler.
        rng: Whether to include the states of the global random generators of Python, NumPy and Paddle.
        **extra: Anything else by name. Data, such as `step=500`, is included unchanged; layers, optimizers, learning
            rate schedulers and gradient scalers by their states; generators of Python and NumPy as copies.

    Returns:
        A dict of part name to state, with a key for each argument that was given, and `"rng"`.

    Raises:
        StateError: If an object has no state. Values that are not data are refused later, when the state is saved.
    """
    return capture_run(_Paddle(), {"model": model, "optimizer": optimizer}, extra, rng=rng)


def restore(
    source: Openable | Mapping[str, Any],
    *,
    model: Any = None,
    optimizer: Any = None,
    rng: bool = True,
    strict: bool = True,
    classes: Classes = (),
    **extra: Any,
) -> dict[str, Any]:
    """Load what `capture` gathered into the objects of a run, so that it continues as if it had never stopped.

        rest = restore("step-500.safetensors", model=layer, optimizer=optimizer)
        step = rest["step"]

    Everything is read and checked before anything is changed. If something does not fit, all objects are left as they
    were. An optimizer without accumulators takes those of the checkpoint with its first step. Nothing in the source
    is run.

    Args:
        source: A directory, a shard index, a file, its bytes or a seekable file object; or a state already loaded
            from one.
        model: The layer to load, or several, as they were captured.
        optimizer: The optimizer, or several, with the same kind of learning rate scheduler.
        rng: Whether to set the global random generators.
        strict: Whether to refuse tensors that only one side has, and other dtypes. Other shapes are refused always.
        classes: Dataclasses, enums and named tuples that may be created from the file.
        **extra: Objects by the names under which they were captured.

    Returns:
        Everything else that was captured, such as `{"step": 500}`.

    Raises:
        StateDictMismatchError: If a part is missing, or does not fit its object. Nothing was changed.
        StateError: If an object cannot be given a state. Nothing was changed.
        UnsupportedError: If a part holds an object of a class that was not passed. Nothing was changed.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If the checkpoint is malformed.
        IntegrityError: If it is incomplete or damaged.
        UnsafeError: If a pickle names functions that serve only to do harm.
        TypeError: If `source` is a `CheckpointStore`.
        TransportError: If it cannot be read.
    """
    objects = {"model": model, "optimizer": optimizer}
    return restore_run(_Paddle(), source, objects, extra, rng=rng, strict=strict, classes=classes)
