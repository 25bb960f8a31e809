"""MLX's modules and optimizers, and its random state (imports MLX)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn

from tensorkeep.arrays import convert_to
from tensorkeep.runs._actions import Action
from tensorkeep.runs._run import Stateful, capture_run, restore_run
from tensorkeep.runs._slots import Array, Slot, as_array, prepare_slots, state_of_slots
from tensorkeep.state import Classes, joined
from tensorkeep.transport import Openable

_WORD_BITS: Final = 32


class _Tree:
    """A module or optimizer, seen as the arrays in its tree."""

    def __init__(self, value: Any, tree: Any, holder: Any) -> None:
        self._kind = type(value).__name__
        self._slots = list(_slots_of(tree, holder, ""))

    def state(self) -> dict[str, Any]:
        return state_of_slots(self._slots)

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        return prepare_slots(self._slots, saved, part, self._kind, strict=strict)


def _slots_of(tree: Any, holder: Any, path: str) -> Iterator[Slot]:
    """Yield the arrays of a tree, each to be replaced in the container that holds it."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        place = joined(path, str(key))
        if isinstance(value, mx.array):
            dtype = str(value.dtype).removeprefix("mlx.core.").rstrip("_")
            yield Slot(place, value.shape, dtype, partial(holder.__getitem__, key), partial(_replace, holder, key))
        elif isinstance(value, dict | list | tuple):
            yield from _slots_of(value, holder[key], place)


def _replace(holder: Any, key: Any, array: Array) -> None:
    holder[key] = convert_to("mlx", array)


def _random_action(saved: Any) -> Action:
    """Check a random state, and return the action that sets it: a seed is the two words of a key."""
    key = as_array(saved)
    if key is None or key.shape != (2,) or key.dtype.name != "uint32":
        raise ValueError("expected two uint32")
    high, low = key.tolist()
    return lambda: mx.random.seed(high << _WORD_BITS | low)


class _Mlx:
    """What `capture` and `restore` need to know of MLX."""

    framework = "mlx"
    expected = "a module or optimizer of MLX"

    def find(self, value: Any) -> Stateful | None:
        if isinstance(value, nn.Module):
            return _Tree(value, value.parameters(), value)
        return _Tree(value, value.state, value.state) if isinstance(value, optim.Optimizer) else None

    def capture_rng(self) -> dict[str, Any]:
        state: Any = mx.random.state
        return {"mlx": state[0]}

    def rng_actions(self) -> Mapping[str, Callable[[Any], Action]]:
        return {"mlx": _random_action}


def capture(*, model: Any = None, optimizer: Any = None, rng: bool = True, **extra: Any) -> dict[str, Any]:
    """Gather everything that a run of MLX needs to continue, as nested data that every save function accepts.

        state = capture(model=model, optimizer=optimizer, step=500)
        tensorkeep.save(state, "step-500.safetensors")

    Args:
        model: A module of `mlx.nn`, or a dict or list of several: all parameters, frozen ones too.
        optimizer: Its optimizer, or several. One that has not seen the model yet is initialized for it.
        rng: Whether to include the states of the global random generators of Python, NumPy and MLX.
        **extra: Anything else by name. Data, such as `step=500`, is included unchanged; modules and optimizers by
            their arrays; generators of Python and NumPy as copies.

    Returns:
        A dict of part name to state, with a key for each argument that was given, and `"rng"`.

    Raises:
        StateError: If an object has no state. Values that are not data are refused later, when the state is saved.
    """
    return capture_run(_Mlx(), _objects(model, optimizer), extra, rng=rng)


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

        rest = restore("step-500.safetensors", model=model, optimizer=optimizer)
        step = rest["step"]

    Everything is read and checked before anything is changed. If something does not fit, all objects are left as they
    were. Arrays are replaced inside the containers that hold them, so functions compiled with `mx.compile` see them.
    Nothing in the source is run.

    Args:
        source: A directory, a shard index, a file, its bytes or a seekable file object; or a state already loaded
            from one.
        model: The module to load, or several, as they were captured.
        optimizer: The optimizer, or several. One that has not seen the model yet is initialized for it.
        rng: Whether to set the global random generators.
        strict: Whether to refuse arrays that only one side has, and other dtypes. Other shapes are always refused.
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
    return restore_run(_Mlx(), source, _objects(model, optimizer), extra, rng=rng, strict=strict, classes=classes)


def _objects(model: Any, optimizer: Any) -> dict[str, Any]:
    """Return model and optimizer by part; an optimizer that has not seen its model is initialized for it."""
    if isinstance(model, nn.Module) and isinstance(optimizer, optim.Optimizer) and not optimizer._initialized:
        optimizer.init(model.trainable_parameters())
    return {"model": model, "optimizer": optimizer}
