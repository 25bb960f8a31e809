"""Random generators of Python and NumPy: the ones passed by the caller, and the global ones."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.runs._actions import Action

_Random: Final = random.Random  # noqa: S311 - for training, not for secrets

HOST_GENERATORS: Final = (np.random.Generator, np.random.RandomState, _Random)
"""Classes of random generators that belong to no array library but NumPy."""

_WITHOUT: Final = "rng=False leaves the global random generators unchanged"


def capture_host_generator(generator: Any) -> Any:
    """Return a copy of a generator's state."""
    return python_state(generator.getstate()) if isinstance(generator, _Random) else copy.deepcopy(generator)


def prepare_host_generator(generator: Any, saved: Any, part: str) -> Action:
    """Try a state on another generator, and return the action that sets this one to it."""
    with as_mismatch(part):
        if isinstance(generator, _Random):
            return _python_action(generator.setstate, saved)
        if isinstance(generator, np.random.RandomState):
            return _random_state_action(generator.get_state(legacy=False), generator.set_state, saved)
        return _numpy_action(generator, saved)


def capture_host_rng() -> dict[str, Any]:
    """Return the states of the global generators of Python and NumPy."""
    return {"python": python_state(random.getstate()), "numpy": _numpy_state()}


def prepare_rng(saved: Any, part: str, others: Mapping[str, Callable[[Any], Action]]) -> Iterator[Action]:
    """Yield the actions that set the global generators; `others` makes the actions for an array library."""
    actions: dict[Any, Callable[[Any], Action]] = {
        "python": lambda state: _python_action(random.setstate, state),
        "numpy": lambda state: _random_state_action(np.random.get_state(legacy=False), np.random.set_state, state),
        **others,
    }
    if not isinstance(saved, Mapping) or not saved.keys() <= actions.keys():
        raise StateDictMismatchError(
            f"{part} does not hold states of random generators as capture makes them",
            expected=f"a dict with some of {', '.join(actions)}",
            found=", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__,
            hint=f"Nothing was changed; {_WITHOUT}",
        )
    for name in sorted(saved, key=lambda name: name not in others):  # loading one of a library may draw from Python's
        state = saved[name]
        with as_mismatch(f"{part}.{name}"):
            yield actions[name](state)


@contextmanager
def as_mismatch(part: str) -> Iterator[None]:
    """Turn the libraries' various errors about an invalid state into one."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        hint = f"Nothing was changed; {_WITHOUT}" if part.startswith("rng.") else "Nothing was changed"
        raise StateDictMismatchError(f"{part} is not a state of this random generator: {error}", hint=hint) from error


def python_state(state: Sequence[Any]) -> dict[str, Any]:
    """Return a state with its 625 numbers as an array, which is smaller than digits."""
    version, words, gauss = state
    return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}


def type_name(value: Any) -> str:
    """Return the name of a value's class for a message."""
    if isinstance(value, Unknown):
        return f"{value.qualified_name} of a pickle, from which no objects are created"
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _numpy_state() -> np.random.RandomState:
    """Return a copy of NumPy's global generator: as an object, every field of it is checked on loading."""
    bits = copy.deepcopy(np.random.get_bit_generator())  # type: ignore[attr-defined]
    generator = np.random.RandomState(bits)
    # The bit generator lacks the second of a pair of normal numbers
    generator.set_state(np.random.get_state(legacy=False))
    return generator


def _python_action(set_state: Callable[[Any], object], saved: Any) -> Action:
    if not isinstance(saved, Mapping) or not saved.keys() >= {"version", "words", "gauss"}:
        raise TypeError("expected a dict with version, words and gauss")
    state = saved["version"], tuple(np.asarray(saved["words"]).tolist()), saved["gauss"]
    _Random().setstate(state)
    return lambda: set_state(state)


def _numpy_action(generator: np.random.Generator, saved: Any) -> Action:
    if not isinstance(saved, np.random.Generator):
        raise TypeError(f"expected a Generator of NumPy, found {type_name(saved)}")
    own, other = generator.bit_generator, saved.bit_generator
    if type(own) is not type(other):
        raise TypeError(f"expected {type(own).__name__}, found {type(other).__name__}")
    seed = copy.deepcopy(other.seed_seq)  # it counts spawned generators
    return lambda: own.__setstate__((other.state, seed))  # type: ignore[attr-defined]


def _random_state_action(own: Mapping[str, Any], set_state: Callable[[Any], object], saved: Any) -> Action:
    if not isinstance(saved, np.random.RandomState):
        raise TypeError(f"expected a RandomState of NumPy, found {type_name(saved)}")
    state: Any = saved.get_state(legacy=False)
    if own["bit_generator"] != state["bit_generator"]:
        raise TypeError(f"expected {own['bit_generator']}, found {state['bit_generator']}")
    return lambda: set_state(state)
