"""Paddle's random generators (imports Paddle)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import paddle

from tensorkeep.runs._actions import Action
from tensorkeep.runs._slots import as_array

_N_WORDS: Final = 312
"""Words of a generator, a 64-bit Mersenne Twister; the place of the next one follows them."""

_MEMBERS: Final = ("device", "seed", "offset", "words")
_DEVICES: Final = ("cpu", "gpu")


def capture_rng() -> dict[str, Any]:
    """Return the states of the global generators, of the CPU and of all GPUs."""
    here = _DEVICES if paddle.device.cuda.device_count() else _DEVICES[:1]
    return {_name(device): [_state_of(one) for one in paddle.get_rng_state(device)] for device in here}


def _name(device: str) -> str:
    return f"paddle_{device}"


def _state_of(state: Any) -> dict[str, Any]:
    """Return the state of a generator, which Paddle gives as text, with its words as an array."""
    *numbers, text = state.__getstate__()
    words = np.array(bytes(text).split(), np.uint64)
    return dict(zip(_MEMBERS, (*numbers, words), strict=True))


def _made(kind: Any, saved: Any) -> Any:
    """Check a state, and return it as Paddle's class: Paddle itself checks nothing."""
    if not isinstance(saved, Mapping) or saved.keys() != set(_MEMBERS):
        raise TypeError(f"expected a dict with {', '.join(_MEMBERS)}")
    words, numbers = as_array(saved["words"]), [saved[key] for key in _MEMBERS[:-1]]
    if words is None or words.shape != (_N_WORDS + 1,) or words.dtype.name != "uint64" or words[-1] > _N_WORDS:
        raise ValueError(f"expected {_N_WORDS} words, and the place of the next")
    if not all(type(number) is int for number in numbers):
        raise TypeError("expected device, seed and offset as integers")
    state = kind.__new__(kind)
    state.__setstate__((*numbers, list(" ".join(map(str, words.tolist())).encode())))
    return state


def _action(device: str, saved: Any) -> Action:
    """Check the states of the generators of a kind of device, and return the action that sets them."""
    own = paddle.get_rng_state(device)
    if not isinstance(saved, list | tuple) or len(saved) != len(own):
        raise ValueError(f"expected states of {len(own)} generators")
    states = [_made(type(now), state) for now, state in zip(own, saved, strict=True)]
    return lambda: paddle.set_rng_state(states, device)


RNG_ACTIONS: Final[Mapping[str, Callable[[Any], Action]]] = {
    _name(device): partial(_action, device) for device in _DEVICES
}
"""The name of the generators of a kind of device to the function that makes the action that sets them."""
