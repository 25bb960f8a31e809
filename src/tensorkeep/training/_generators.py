"""Random generators: those that are passed, and those that a process has for everybody."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.formats.pickles import Unknown

_Random: Final = random.Random  # noqa: S311 - whoever passes one knows what it is for

GENERATORS: Final = (torch.Generator, np.random.Generator, np.random.RandomState, _Random)
"""Classes of objects that are random generators."""

_Action = Callable[[], object]


def capture_generator(generator: Any) -> Any:
    """Return the state of a generator, as a copy that does not go on with it."""
    if isinstance(generator, torch.Generator):
        return generator.clone_state()
    return _python_state(generator.getstate()) if isinstance(generator, _Random) else copy.deepcopy(generator)


def prepare_generator(generator: Any, saved: Any, part: str) -> _Action:
    """Return what sets a generator to a state, after the state was tried elsewhere."""
    with _as_mismatch(part):
        if isinstance(generator, torch.Generator):
            return _torch_action(generator, saved)
        if isinstance(generator, _Random):
            return _python_action(generator.setstate, saved)
        if isinstance(generator, np.random.RandomState):
            return _random_state_action(generator.get_state(legacy=False), generator.set_state, saved)
        return _numpy_action(generator, saved)


def capture_rng() -> dict[str, Any]:
    """Return the states of the generators that Python, NumPy and torch have for everybody, on all devices in use."""
    states = {"python": _python_state(random.getstate()), "numpy": _numpy_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def prepare_rng(saved: Any, part: str) -> Iterator[_Action]:
    """Give what sets the generators that everybody has to what `capture_rng` returned."""
    actions: dict[Any, Callable[[Any], _Action]] = {
        "python": lambda state: _python_action(random.setstate, state),
        "numpy": lambda state: _random_state_action(np.random.get_state(legacy=False), np.random.set_state, state),
        "torch": lambda state: _torch_action(torch.default_generator, state),
        "cuda": _cuda_action,
        "mps": _mps_action,
    }
    if not isinstance(saved, Mapping) or not saved.keys() <= actions.keys():
        raise StateDictMismatchError(
            f"{part} is not what capture makes of random generators",
            expected=f"a dict with some of {', '.join(actions)}",
            found=", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__,
            hint=f"Nothing was changed; {_WITHOUT}",
        )
    for name, state in saved.items():
        with _as_mismatch(f"{part}.{name}"):
            yield actions[name](state)


_WITHOUT: Final = "rng=False leaves the generators that everybody has as they are"


@contextmanager
def _as_mismatch(part: str) -> Iterator[None]:
    """Turn what libraries say of a state that is none into one error."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        hint = f"Nothing was changed; {_WITHOUT}" if part.startswith("rng.") else "Nothing was changed"
        raise StateDictMismatchError(
            f"{part} cannot be the state of this random generator: {error}", hint=hint
        ) from error


def _numpy_state() -> np.random.RandomState:
    """Return a copy of NumPy's generator for everybody; of an object, every field is checked when it is loaded."""
    bits = copy.deepcopy(np.random.get_bit_generator())  # type: ignore[attr-defined]
    generator = np.random.RandomState(bits)
    generator.set_state(np.random.get_state(legacy=False))  # the second of a pair of normal numbers too
    return generator


def _torch_action(generator: torch.Generator, saved: Any) -> _Action:
    if isinstance(saved, torch.Generator):
        if saved.device.type != generator.device.type:
            raise TypeError(f"one of device {generator.device} is needed, not of {saved.device}")
        saved = saved.get_state()
    state = _checked_bytes(saved)
    torch.Generator(generator.device).set_state(state)
    return lambda: generator.set_state(state)


def _python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    """Return a state with its 625 numbers as an array, which takes less room than digits."""
    version, words, gauss = state
    return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}


def _python_action(set_state: Callable[[Any], object], saved: Any) -> _Action:
    if not isinstance(saved, Mapping) or not saved.keys() >= {"version", "words", "gauss"}:
        raise TypeError("a dict with version, words and gauss is needed")
    state = saved["version"], tuple(np.asarray(saved["words"]).tolist()), saved["gauss"]
    _Random().setstate(state)
    return lambda: set_state(state)


def _numpy_action(generator: np.random.Generator, saved: Any) -> _Action:
    if not isinstance(saved, np.random.Generator):
        raise TypeError(f"a Generator of NumPy is needed, not {_name(saved)}")
    own, other = generator.bit_generator, saved.bit_generator
    if type(own) is not type(other):
        raise TypeError(f"{type(own).__name__} is needed, not {type(other).__name__}")
    seed = copy.deepcopy(other.seed_seq)  # it counts the generators that were spawned
    return lambda: own.__setstate__((other.state, seed))  # type: ignore[attr-defined]


def _random_state_action(own: Mapping[str, Any], set_state: Callable[[Any], object], saved: Any) -> _Action:
    if not isinstance(saved, np.random.RandomState):
        raise TypeError(f"a RandomState of NumPy is needed, not {_name(saved)}")
    state: Any = saved.get_state(legacy=False)
    if own["bit_generator"] != state["bit_generator"]:
        raise TypeError(f"{own['bit_generator']} is needed, not {state['bit_generator']}")
    return lambda: set_state(state)


def _cuda_action(saved: Any) -> _Action:
    states = [_checked_bytes(state) for state in saved]
    n_devices = torch.cuda.device_count()
    if len(states) > n_devices:
        raise ValueError(f"states of {len(states)} CUDA devices, and there are {n_devices}")
    return lambda: torch.cuda.set_rng_state_all(states)


def _mps_action(saved: Any) -> _Action:
    state = _checked_bytes(saved)
    if not torch.backends.mps.is_available():
        raise ValueError("the state of an MPS device, and there is none")
    return lambda: torch.mps.set_rng_state(state)


def _checked_bytes(saved: Any) -> torch.Tensor:
    if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
        raise TypeError(f"a tensor of bytes is needed, not {_name(saved)}")
    return saved.cpu()


def _name(value: Any) -> str:
    if isinstance(value, Unknown):
        return f"{value.qualified_name} of a pickle, of which nothing is made"
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
