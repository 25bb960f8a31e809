"""TensorFlow's modules, checkpoints, variables and random generators, and Keras's objects in them.

A variable has the name that it has in a checkpoint of TensorFlow: the attributes and keys that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import tensorflow as tf

from tensorkeep.errors import StateError
from tensorkeep.runs._actions import Action
from tensorkeep.runs._generators import as_mismatch
from tensorkeep.runs._run import Stateful, capture_run, restore_run
from tensorkeep.runs._slots import Array, Slot, state_of_slots
from tensorkeep.runs.keras import keras_object, prepare_under_numbered_names
from tensorkeep.runs.tensorflow_generators import RNG_ACTIONS, capture_rng, generator_action, generator_state
from tensorkeep.state import Classes, joined
from tensorkeep.transport import Openable

_TRACKABLE: Final = (tf.Module, tf.train.Checkpoint, tf.__internal__.tracking.Trackable)
_OWN_STATE: Final = "_serialize_to_tensors"
"""What a trackable object has whose state is not in variables that it tracks."""


class _Generator:
    """A random generator."""

    def __init__(self, generator: tf.random.Generator) -> None:
        self._generator = generator

    def state(self) -> dict[str, Any]:
        return generator_state(self._generator)

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:  # noqa: ARG002
        with as_mismatch(part):
            yield generator_action(self._generator, saved)


class _Trackable:
    """An object that tracks variables, seen as these."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def slots(self) -> list[Slot]:
        """Return all variables, each once, under the first name that leads to it."""
        return list(_slots_of(self._root, "", set()))

    def state(self) -> dict[str, Any]:
        return state_of_slots(self.slots())

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        return prepare_under_numbered_names(self.slots(), saved, part, type(self._root).__name__, strict=strict)


def _slots_of(value: Any, path: str, seen: set[int]) -> Iterator[Slot]:
    if id(value) in seen:
        return
    seen.add(id(value))
    found = keras_object(value)
    if found is not None:
        for slot in found.slots():
            yield Slot(joined(path, slot.name), slot.shape, slot.dtype, slot.read, slot.assign)
    elif isinstance(value, tf.Variable):
        yield _slot(value, path or "value")
    elif getattr(value, _OWN_STATE, None) is not None and not _is_plain(value):
        raise StateError(
            f"`{path}` has a state that is not in variables",
            found=f"{type(value).__module__}.{type(value).__qualname__}",
            hint="Keep it outside of the object, and save its content or position as data",
        )
    else:
        for name, child in tf.train.TrackableView.children(value).items():
            yield from _slots_of(child, joined(path, name), seen)


def _is_plain(value: Any) -> bool:
    """Whether an object has TensorFlow's default state: none but what it tracks."""
    base = tf.__internal__.tracking.Trackable
    return getattr(type(value), _OWN_STATE, None) is getattr(base, _OWN_STATE, None)


def _slot(variable: Any, name: str) -> Slot:
    dtype = variable.dtype.base_dtype.name
    return Slot(name, tuple(variable.shape), dtype, variable.value, partial(_assign, variable))


def _assign(variable: Any, array: Array) -> None:
    variable.assign(tf.constant(array))


class _Tensorflow:
    """What `capture` and `restore` need to know of TensorFlow."""

    framework = "tensorflow"
    expected = "a tf.Module, tf.train.Checkpoint, tf.Variable, tf.random.Generator or object of Keras"

    def find(self, value: Any) -> Stateful | None:
        found = keras_object(value)
        if found is not None:
            return found
        if isinstance(value, tf.random.Generator):
            return _Generator(value)
        return _Trackable(value) if isinstance(value, _TRACKABLE) else None

    def capture_rng(self) -> dict[str, Any]:
        return capture_rng()

    def rng_actions(self) -> Mapping[str, Callable[[Any], Action]]:
        return RNG_ACTIONS


def capture(*, model: Any = None, optimizer: Any = None, rng: bool = True, **extra: Any) -> dict[str, Any]:
    """Gather everything that a run of TensorFlow needs to continue, as nested data that every save function accepts.

        state = capture(model=module, optimizer=optimizer, step=500)
        tensorkeep.save(state, "step-500.safetensors")

    For Keras models, `tensorkeep.keras.capture` does the same, and finds the optimizer by itself.

    Args:
        model: A `tf.Module`, `tf.train.Checkpoint`, `tf.Variable` or Keras model; or a dict or list of several.
        optimizer: Its optimizer, or several.
        rng: Whether to include the states of the global random generators of Python, NumPy and TensorFlow
            (`tf.random.get_global_generator()`). Functions such as `tf.random.normal` keep theirs where it cannot be
            read: use a generator.
        **extra: Anything else by name. Data, such as `step=500`, is included unchanged; objects by their variables;
            generators of TensorFlow, Python and NumPy by their states.

    Returns:
        A dict of part name to state, with a key for each argument that was given, and `"rng"`.

    Raises:
        StateError: If an object has no variables yet, or keeps a state elsewhere, such as a table or an iterator.
            Values that are not data are refused later, when the state is saved.
    """
    return capture_run(_Tensorflow(), {"model": model, "optimizer": optimizer}, extra, rng=rng)


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

        rest = restore("step-500.safetensors", model=module, optimizer=optimizer)
        step = rest["step"]

    Everything is read and checked before anything is changed. If something does not fit, all objects are left as they
    were. Nothing in the source is run.

    Args:
        source: A directory, a shard index, a file, its bytes or a seekable file object; or a state already loaded
            from one.
        model: The object to load, or several, as they were captured.
        optimizer: The optimizer, or several. It must be built.
        rng: Whether to set the global random generators.
        strict: Whether to refuse variables that only one side has, and other dtypes. Other shapes are always refused.
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
    return restore_run(_Tensorflow(), source, objects, extra, rng=rng, strict=strict, classes=classes)
