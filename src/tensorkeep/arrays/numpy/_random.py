"""NumPy's random generators as plain data.

kind              parts                              settings
bit_generator     the arrays of its state            bit_generator: its name; the numbers of its state; seed, if known
random_generator  bit_generator
random_state      bit_generator                      has_gauss and gauss

NumPy trusts a state that it is given, and reads out of bounds if a position in it is wrong: every field is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tensorkeep.arrays._base import EncodedObject

RANDOM_KINDS: Final = ("bit_generator", "random_generator", "random_state")

_BIT_GENERATORS: Final = {
    kind.__name__: kind
    for kind in (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
}
_U32: Final = 2**32 - 1
_U128: Final = 2**128 - 1
_HALF: Final = {"has_uint32": 1, "uinteger": _U32}
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "MT19937": {"key": ("uint32", 624), "pos": 624},
    "PCG64": {"state": _U128, "inc": _U128} | _HALF,
    "PCG64DXSM": {"state": _U128, "inc": _U128} | _HALF,
    "Philox": {"counter": ("uint64", 4), "key": ("uint64", 2), "buffer": ("uint64", 4), "buffer_pos": 4} | _HALF,
    "SFC64": {"state": ("uint64", 4)} | _HALF,
}
"""The fields of each state: the dtype and length of an array, or the largest value of a number."""

_INNER: Final = {"key", "pos", "state", "inc", "counter"}
"""Fields that NumPy keeps one level deeper."""

_SEED_FIELDS: Final = ("entropy", "spawn_key", "pool_size", "n_children_spawned")
_MAX_SEED_WORDS: Final = 4096
"""Numbers in a seed; NumPy makes four."""


def encode_random(value: Any) -> EncodedObject | None:
    """Return a generator as arrays and plain data; None if it is not one."""
    if type(value) is np.random.Generator:
        return EncodedObject("numpy", "random_generator", {"bit_generator": value.bit_generator}, {})
    if type(value) is np.random.RandomState:
        state: Any = value.get_state(legacy=False)
        settings = {"has_gauss": int(state["has_gauss"]), "gauss": float(state["gauss"])}
        return EncodedObject("numpy", "random_state", {"bit_generator": value._bit_generator}, settings)
    if type(value) in _BIT_GENERATORS.values():
        return _encode_bits(value)
    return None


def _encode_bits(value: Any) -> EncodedObject:
    state = dict(value.state)
    name = state.pop("bit_generator")
    fields = {**state.pop("state"), **state}
    parts = {field: array for field, array in fields.items() if isinstance(array, np.ndarray)}
    numbers = {field: int(number) for field, number in fields.items() if field not in parts}
    settings: dict[str, Any] = {"bit_generator": name} | numbers
    if type(value.seed_seq) is np.random.SeedSequence:
        seed: Any = value.seed_seq.state
        settings["seed"] = {field: _as_numbers(seed[field]) for field in _SEED_FIELDS}
    return EncodedObject("numpy", "bit_generator", parts, settings)


def _as_numbers(value: Any) -> Any:
    return int(value) if np.ndim(value) == 0 else tuple(int(word) for word in value)


def decode_random(kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """Return the generator that was encoded."""
    if kind == "bit_generator":
        return _decode_bits(parts, settings)
    bits = parts["bit_generator"]
    if type(bits) not in _BIT_GENERATORS.values():
        raise TypeError("bit_generator is not a bit generator")
    if kind == "random_generator":
        return np.random.Generator(bits)
    gauss = settings["gauss"]
    if type(gauss) is not float:
        raise TypeError("gauss is not a float")
    has_gauss = _natural(settings, "has_gauss", 1)
    generator = np.random.RandomState(bits)
    generator.set_state({**bits.state, "has_gauss": has_gauss, "gauss": gauss})
    return generator


def _decode_bits(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    name = settings["bit_generator"]
    state: dict[str, Any] = {"bit_generator": name, "state": {}}
    for field, rule in _FIELDS[name].items():
        value = _natural(settings, field, rule) if type(rule) is int else _array(parts, field, *rule)
        (state["state"] if field in _INNER else state)[field] = value
    made: Any = _BIT_GENERATORS[name](_seed_of(settings["seed"]) if "seed" in settings else 0)
    made.state = state
    return made


def _natural(settings: Mapping[str, Any], field: str, largest: int) -> int:
    value: int = settings[field]
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{field} is {value!r:.50}")
    return value


def _array(parts: Mapping[str, Any], field: str, dtype: str, length: int) -> Any:
    array = parts[field]
    if type(array) is not np.ndarray or array.dtype != dtype or array.shape != (length,):
        raise ValueError(f"{field} is not an array of {length} {dtype}")
    return array


def _seed_of(seed: Any) -> np.random.SeedSequence:
    if type(seed) is not dict:
        raise TypeError("the seed is not a dict")
    words = {field: _words(seed[field]) for field in ("entropy", "spawn_key")}
    return np.random.SeedSequence(
        **words,
        pool_size=_natural(seed, "pool_size", _MAX_SEED_WORDS),
        n_children_spawned=_natural(seed, "n_children_spawned", _U32),
    )


def _words(value: Any) -> Any:
    words = value if type(value) in {list, tuple} else [value]
    if len(words) > _MAX_SEED_WORDS or any(type(word) is not int or not 0 <= word <= _U128**64 for word in words):
        raise ValueError("a seed is not a list of numbers from 0")
    return value
