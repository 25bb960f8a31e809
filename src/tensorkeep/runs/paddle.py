"""Paddle's layers (imports Paddle), and `capture` and `restore` for its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import paddle

from tensorkeep.runs._actions import Action
from tensorkeep.runs._run import Stateful, capture_run, restore_run
from tensorkeep.runs._slots import prepare_slots, state_of_slots
from tensorkeep.runs.paddle_generators import RNG_ACTIONS, capture_rng
from tensorkeep.runs.paddle_lbfgs import PaddleLbfgs
from tensorkeep.runs.paddle_optimizers import PaddleOptimizer, Stated, slot_of
from tensorkeep.state import Classes
from tensorkeep.transport import Openable


class _Layer:
    """A layer, seen as the tensors of its state dict."""

    def __init__(self, layer: Any) -> None:
        self._kind = type(layer).__name__
        self._slots = [slot_of(name, tensor) for name, tensor in layer.state_dict().items()]

    def state(self) -> dict[str, Any]:
        return state_of_slots(self._slots)

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        return prepare_slots(self._slots, saved, part, self._kind, strict=strict)


class _Paddle:
    """What `capture` and `restore` need to know of Paddle."""

    framework = "paddle"
    expected = "a layer, optimizer, learning rate scheduler or gradient scaler of Paddle"

    def find(self, value: Any) -> Stateful | None:
        if isinstance(value, paddle.nn.Layer):
            return _Layer(value)
        if isinstance(value, paddle.optimizer.LBFGS):
            return PaddleLbfgs(value)
        if isinstance(value, paddle.optimizer.Optimizer):
            return PaddleOptimizer(value)
        return Stated(value) if isinstance(value, paddle.optimizer.lr.LRScheduler | paddle.amp.GradScaler) else None

    def capture_rng(self) -> dict[str, Any]:
        return capture_rng()

    def rng_actions(self) -> Mapping[str, Callable[[Any], Action]]:
        return RNG_ACTIONS


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
    were. An optimizer without accumulators gets the saved ones with its first step. Nothing in the source
    is run.

    Args:
        source: A directory, a shard index, a file, its bytes or a seekable file object; or a state already loaded
            from one.
        model: The layer to load, or several, as they were captured.
        optimizer: The optimizer, or several, with the same kind of learning rate scheduler.
        rng: Whether to set the global random generators.
        strict: Whether to refuse tensors that only one side has, and other dtypes. Other shapes are always refused.
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
