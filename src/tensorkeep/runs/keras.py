"""Keras's models, layers, optimizers, metrics and seed generators, of any backend (imports Keras).

Keras numbers its automatic names within a process: the same program gives `dense/kernel` in one run and
`dense_2/kernel` in another. So a state has the names that Keras shows, and if the object has others, names
without these numbers are compared, in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import keras
from keras.src.backend.common.global_state import get_global_attribute
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator

from tensorkeep.errors import StateDictMismatchError, StateError
from tensorkeep.runs._actions import Action
from tensorkeep.runs._run import Stateful, capture_run, restore_run
from tensorkeep.runs._slots import Array, Slot, as_array, prepare_slots, state_of_slots
from tensorkeep.state import Classes
from tensorkeep.transport import Openable

BACKEND: Final = keras.backend.backend()
"""The array library that Keras uses in this process."""

if BACKEND == "torch":
    from tensorkeep.runs.torch import RNG_ACTIONS, capture_rng
elif BACKEND == "tensorflow":
    from tensorkeep.runs.tensorflow_generators import RNG_ACTIONS, capture_rng
else:  # their generators have no global state
    RNG_ACTIONS: Mapping[str, Callable[[Any], Action]] = {}  # type: ignore[no-redef]

    def capture_rng() -> dict[str, Any]:
        """Return the states of the backend's global generators: none."""
        return {}


_NUMBER: Final = re.compile(r"_\d+(?=[_/]|$)")
"""What Keras adds to an automatic name that is taken."""


class KerasObject:
    """An object of Keras, seen as its variables."""

    def __init__(self, value: Any, variables: list[Any]) -> None:
        self._value = value
        self._variables = variables

    def slots(self) -> list[Slot]:
        """Return its variables under the paths that Keras shows, each made unique."""
        if not self._variables or getattr(self._value, "built", True) is False:
            raise StateError(
                f"this {type(self._value).__name__} has no variables yet",
                found=f"`{self._value.name}`, which was not built",
                hint="Build it first: model.build(...), optimizer.build(model.trainable_variables)",
            )
        names: dict[str, int] = {}
        slots = []
        for variable in self._variables:
            names[variable.path] = number = names.get(variable.path, 0) + 1
            slots.append(_slot(variable, variable.path if number == 1 else f"{variable.path}#{number}"))
        return slots

    def state(self) -> dict[str, Any]:
        """Return all variables by path."""
        return state_of_slots(self.slots())

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        """Check that a state fits, and yield the actions that assign its variables."""
        return prepare_under_numbered_names(self.slots(), saved, part, type(self._value).__name__, strict=strict)


def keras_object(value: Any) -> KerasObject | None:
    """Return an object of Keras as its variables; None for anything else."""
    if isinstance(value, keras.Layer | keras.optimizers.Optimizer | keras.metrics.Metric):
        return KerasObject(value, list(value.variables))
    if isinstance(value, keras.random.SeedGenerator):
        return KerasObject(value, [value.state])
    return KerasObject(value, [value]) if isinstance(value, keras.Variable) else None


def _slot(variable: Any, name: str) -> Slot:
    dtype = keras.backend.standardize_dtype(variable.dtype)
    address = variable.value.data_ptr() if BACKEND == "torch" else 0
    return Slot(name, tuple(variable.shape), dtype, lambda: _value_of(variable), variable.assign, address)


def _value_of(variable: Any) -> Any:
    """Return a variable's elements as a tensor of the backend."""
    value = variable.value
    if BACKEND == "tensorflow":
        return value.value()
    return value.detach() if BACKEND == "torch" else value


def prepare_under_numbered_names(
    slots: list[Slot], saved: Any, part: str, kind: str, *, strict: bool
) -> Iterator[Action]:
    """Check a state that may have other numbers in automatic names, and yield the actions that assign variables."""
    return prepare_slots(slots, _under_own_names(slots, saved), part, kind, strict=strict)


def _under_own_names(slots: list[Slot], saved: Any) -> Any:
    """Return a state under the names of an object whose automatic names have other numbers."""
    own = [slot.name for slot in slots]
    if not isinstance(saved, Mapping) or saved.keys() == set(own):
        return saved
    if [_NUMBER.sub("", name) for name in own] != [_NUMBER.sub("", str(name)) for name in saved]:
        return saved
    return dict(zip(own, saved.values(), strict=True))


def _seed_action(saved: Any) -> Action:
    """Check a state of Keras's global seed generator, and return the action that sets it."""
    array = as_array(saved)
    if array is None or array.shape != (2,) or array.dtype.kind not in "iu":
        raise ValueError("expected two integers")
    seed: Array = array

    def set_seed() -> None:
        state = global_seed_generator().state
        state.assign(seed.astype(keras.backend.standardize_dtype(state.dtype)))

    return set_seed


class _Keras:
    """What `capture` and `restore` need to know of Keras."""

    framework = BACKEND
    expected = "a model, layer, optimizer, metric or seed generator of Keras"

    def find(self, value: Any) -> Stateful | None:
        return keras_object(value)

    def capture_rng(self) -> dict[str, Any]:
        seed = get_global_attribute(GLOBAL_SEED_GENERATOR)
        return capture_rng() | ({} if seed is None else {"keras": _value_of(seed.state)})

    def rng_actions(self) -> Mapping[str, Callable[[Any], Action]]:
        return {**RNG_ACTIONS, "keras": _seed_action}


def capture(*, model: Any = None, optimizer: Any = None, rng: bool = True, **extra: Any) -> dict[str, Any]:
    """Gather everything that a run of Keras needs to continue, as nested data that every save function accepts.

        state = capture(model=model, epoch=3)
        tensorkeep.save(state, "epoch-3.safetensors")

    Tensors may be the run's own, not copies: save the state before training continues, or keep `copy.deepcopy` of it.

    Args:
        model: The model, or a dict or list of several: all variables, with the states of its seed generators.
        optimizer: Its optimizer, or several. By default, the one that the model was compiled with; False for none.
        rng: Whether to include the states of the global random generators of Python, NumPy, Keras and its backend
            (torch's, or `tf.random.get_global_generator()`).
        **extra: Anything else by name. Data, such as `epoch=3`, is included unchanged; metrics, layers, seed
            generators and optimizers by their variables; generators of Python and NumPy as copies.

    Returns:
        A dict of part name to state, with a key for each object, and `"rng"`.

    Raises:
        StateError: If an object has no variables yet, or cannot have any. Values that are not data are refused later,
            when the state is saved.
    """
    return capture_run(_Keras(), _objects(model, optimizer), extra, rng=rng)


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

        rest = restore("epoch-3.safetensors", model=model)
        epoch = rest["epoch"]

    Everything is read and checked before anything is changed. If something does not fit, all objects are left as they
    were. A state that was saved with one backend is restored with any other; global random generators belong to
    the backend, so pass `rng=False` then. Nothing in the source is run.

    Args:
        source: A directory, a shard index, a file, its bytes or a seekable file object; or a state already loaded
            from one.
        model: The model to load, which must be built; or several, as they were captured.
        optimizer: The optimizer. By default, the one that the model was compiled with, which is built if necessary;
            False for none.
        rng: Whether to set the global random generators.
        strict: Whether to refuse variables that only one side has, and other dtypes. Other shapes are always refused.
        classes: Dataclasses, enums and named tuples that may be created from the file.
        **extra: Objects by the names under which they were captured.

    Returns:
        Everything else that was captured, such as `{"epoch": 3}`.

    Raises:
        StateDictMismatchError: If a part is missing, or does not fit its object. Nothing was changed.
        StateError: If an object has no variables. Nothing was changed.
        UnsupportedError: If a part holds an object of a class that was not passed. Nothing was changed.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If the checkpoint is malformed.
        IntegrityError: If it is incomplete or damaged.
        UnsafeError: If a pickle names functions that serve only to do harm.
        TypeError: If `source` is a `CheckpointStore`.
        TransportError: If it cannot be read.
    """
    objects = _objects(model, optimizer)
    try:
        return restore_run(_Keras(), source, objects, extra, rng=rng, strict=strict, classes=classes)
    except StateDictMismatchError as error:
        if optimizer is None and "optimizer" in error.missing and "model" not in error.missing:
            hint = "The optimizer of a compiled model is restored too: pass optimizer=False to leave it unchanged"
            raise error.with_fields(hint=hint) from None
        raise


def _objects(model: Any, optimizer: Any) -> dict[str, Any]:
    """Return model and optimizer by part; the optimizer of a compiled model is built if it was not yet."""
    if optimizer is None and getattr(model, "compiled", False):
        optimizer = model.optimizer
    if isinstance(model, keras.Model) and isinstance(optimizer, keras.optimizers.Optimizer) and not optimizer.built:
        optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": None if optimizer is False else optimizer}
