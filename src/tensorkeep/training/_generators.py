"""Random generators: the ones passed by the caller, and the global ones of Python, NumPy and torch."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.formats.pickles import Unknown

_Random: Final = random.Random  # noqa: S311 - for training, not for secrets

GENERATORS: Final = (torch.Generator, np.random.Generator, np.random.RandomState, _Random)
"""Classes of random generators."""

_Action = Callable[[], object]


def capture_generator(generator: Any) -> Any:
    """Return a copy of a generator's state."""
    if isinstance(generator, torch.Generator):
        return generator.clone_state()
    return _python_state(generator.getstate()) if isinstance(generator, _Random) else copy.deepcopy(generator)


def prepare_generator(generator: Any, saved: Any, part: str) -> _Action:
    """Try a state on another generator, and return the action that sets this one to it."""
    with _as_mismatch(part):
        if isinstance(generator, torch.Generator):
            return _torch_action(generator, saved)
        if isinstance(generator, _Random):
            return _python_action(generator.setstate, saved)
        if isinstance(generator, np.random.RandomState):
            return _random_state_action(generator.get_state(legacy=False), generator.set_state, saved)
        return _numpy_action(generator, saved)


def capture_rng() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch, on all devices in use."""
    states = {"python": _python_state(random.getstate()), "numpy": _numpy_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def rng_of(python: Sequence[Any], numpy: Sequence[Any], torch_state: Any, cuda: Any = None) -> dict[str, Any]:
    """Return what `capture_rng` would, from the libraries' own states as accelerate and transformers pickle them."""
    generator = np.random.RandomState()
    generator.set_state(tuple(numpy))
    states = {"python": _python_state(python), "numpy": generator, "torch": torch_state}
    if cuda is not None:
        states["cuda"] = cuda if isinstance(cuda, list | tuple) else [cuda]
    return states


def prepare_rng(saved: Any, part: str) -> Iterator[_Action]:
    """Yield the actions that set the global generators to what `capture_rng` returned."""
    actions: dict[Any, Callable[[Any], _Action]] = {
        "python": lambda state: _python_action(random.setstate, state),
        "numpy": lambda state: _random_state_action(np.random.get_state(legacy=False), np.random.set_state, state),
        "torch": lambda state: _torch_action(torch.default_generator, state),
        "cuda": _cuda_action,
        "mps": _mps_action,
    }
    if not isinstance(saved, Mapping) or not saved.keys() <= actions.keys():
        raise StateDictMismatchError(
            f"{part} does not hold states of random generators as capture makes them",
            expected=f"a dict with some of {', '.join(actions)}",
            found=", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__,
            hint=f"Nothing was changed; {_WITHOUT}",
        )
    for name, state in saved.items():
        with _as_mismatch(f"{part}.{name}"):
            yield actions[name](state)


_WITHOUT: Final = "rng=False leaves the global random generators unchanged"


@contextmanager
def _as_mismatch(part: str) -> Iterator[None]:
    """Turn the libraries' various errors about an invalid state into one."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        hint = f"Nothing was changed; {_WITHOUT}" if part.startswith("rng.") else "Nothing was changed"
        raise StateDictMismatchError(f"{part} is not a state of this random generator: {error}", hint=hint) from error


def _numpy_state() -> np.random.RandomState:
    """Return a copy of NumPy's global generator: as an object, every field of it is checked on loading."""
    bits = copy.deepcopy(np.random.get_bit_generator())  # type: ignore[attr-defined]
    generator = np.random.RandomState(bits)
    # The bit generator lacks the second of a pair of normal numbers
    generator.set_state(np.random.get_state(legacy=False))
    return generator


def _torch_action(generator: torch.Generator, saved: Any) -> _Action:
    if isinstance(saved, torch.Generator):
        if saved.device.type != generator.device.type:
            raise TypeError(f"expected a generator on {generator.device}, found one on {saved.device}")
        saved = saved.get_state()
    state = _checked_bytes(saved)
    torch.Generator(generator.device).set_state(state)
    return lambda: generator.set_state(state)


def _python_state(state: Sequence[Any]) -> dict[str, Any]:
    """Return a state with its 625 numbers as an array, which is smaller than digits."""
    version, words, gauss = state
    return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}


def _python_action(set_state: Callable[[Any], object], saved: Any) -> _Action:
    if not isinstance(saved, Mapping) or not saved.keys() >= {"version", "words", "gauss"}:
        raise TypeError("expected a dict with version, words and gauss")
    state = saved["version"], tuple(np.asarray(saved["words"]).tolist()), saved["gauss"]
    _Random().setstate(state)
    return lambda: set_state(state)


def _numpy_action(generator: np.random.Generator, saved: Any) -> _Action:
    if not isinstance(saved, np.random.Generator):
        raise TypeError(f"expected a Generator of NumPy, found {_name(saved)}")
    own, other = generator.bit_generator, saved.bit_generator
    if type(own) is not type(other):
        raise TypeError(f"expected {type(own).__name__}, found {type(other).__name__}")
    seed = copy.deepcopy(other.seed_seq)  # it counts spawned generators
    return lambda: own.__setstate__((other.state, seed))  # type: ignore[attr-defined]


def _random_state_action(own: Mapping[str, Any], set_state: Callable[[Any], object], saved: Any) -> _Action:
    if not isinstance(saved, np.random.RandomState):
        raise TypeError(f"expected a RandomState of NumPy, found {_name(saved)}")
    state: Any = saved.get_state(legacy=False)
    if own["bit_generator"] != state["bit_generator"]:
        raise TypeError(f"expected {own['bit_generator']}, found {state['bit_generator']}")
    return lambda: set_state(state)


def _cuda_action(saved: Any) -> _Action:
    states = [_checked_bytes(state) for state in saved]
    n_devices = torch.cuda.device_count()
    if len(states) > n_devices:
        raise ValueError(f"expected states of at most {n_devices} CUDA devices, found {len(states)}")
    return lambda: torch.cuda.set_rng_state_all(states)


def _mps_action(saved: Any) -> _Action:
    state = _checked_bytes(saved)
    if not torch.backends.mps.is_available():
        raise ValueError("found the state of an MPS device, and there is no such device")
    return lambda: torch.mps.set_rng_state(state)


def _checked_bytes(saved: Any) -> torch.Tensor:
    if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
        raise TypeError(f"expected a tensor of bytes, found {_name(saved)}")
    return saved.cpu()


def _name(value: Any) -> str:
    if isinstance(value, Unknown):
        return f"{value.qualified_name} of a pickle, from which no objects are created"
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
