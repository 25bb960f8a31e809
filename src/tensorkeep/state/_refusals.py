"""Errors for values that cannot be saved, with their place and a hint."""

from __future__ import annotations

import io
import re
import types
from array import array
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from datetime import date, time, timedelta
from functools import partial
from typing import Any, Final

from tensorkeep.arrays import is_tensor, object_hint, tensor_hint
from tensorkeep.errors import LimitError, StateError
from tensorkeep.limits import MAX_STATE_DEPTH
from tensorkeep.state._keys import words_for
from tensorkeep.state._values import NamedData

_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial)
_BUILTINS: Final = (dict, list, tuple, set, frozenset, deque, str, int, float, complex, bytes, bytearray)

_HINTS: Final[tuple[tuple[Callable[[Any], bool], str | Callable[[Any], str]], ...]] = (
    (lambda value: isinstance(value, type), "A class is not data: save its name"),
    (lambda value: isinstance(value, _FUNCTIONS), "A function is not data: save its name and its settings"),
    (lambda value: _has(value, "state_dict"), "Save what its state_dict() returns"),
    (
        lambda value: isinstance(value, io.IOBase | types.ModuleType | types.CoroutineType),
        "It belongs to this process: save its path, name or bytes",
    ),
    (lambda value: isinstance(value, memoryview | array), "Save numpy.asarray(...) of it, or bytes(...)"),
    (lambda value: isinstance(value, KeysView | ValuesView | ItemsView), "Save list(...) of it"),
    (lambda value: isinstance(value, Iterator), "Reading an iterator uses it up: save list(...) of it"),
    (lambda value: _has(value, "acquire"), "A lock belongs to this process: leave it out"),
    (is_tensor, tensor_hint),
    (lambda value: object_hint(value) != "", object_hint),
    (lambda value: _has(value, "to_numpy", "columns"), "Save what to_numpy() of each column returns, in a dict"),
    (lambda value: _has(value, "to_numpy"), "Save what its to_numpy() returns"),
    (lambda value: _has(value, "tocoo", "toarray"), "Save the row, col, data and shape of its tocoo() in a dict"),
    (lambda value: _has(value, "__array__") or _has(value, "__array_interface__"), "Save numpy.asarray(...) of it"),
    (lambda value: _has(value, "model_dump"), "Save what its model_dump() returns"),
    (lambda value: isinstance(value, re.Pattern), "Save its pattern and its flags"),
    (lambda value: isinstance(value, date | time | timedelta), "Save its isoformat() or total_seconds()"),
)
"""A test, and a hint for values that pass; the first match counts. Only classes are asked: objects could run code."""


def not_data(value: Any, path: str, role: str = "") -> StateError:
    """Return the error for a value that cannot be saved."""
    found = value if isinstance(value, type) else type(value)
    kind = "the class " if isinstance(value, type) else ""
    return StateError(
        f"{role}{words_for(path)} is not data that can be saved",
        found=f"{kind}{found.__module__}.{found.__qualname__}",
        hint=_hint(value),
    )


def advised(error: StateError, value: Any, content: Any) -> StateError:
    """Return the error for something in a container: a library may know how to save a dataclass as a whole."""
    is_dataclass = isinstance(content, NamedData) and content.kind == "dataclass"
    hint = object_hint(value) if is_dataclass else ""
    return error.with_fields(hint=hint) if hint else error


def cycle(path: str) -> StateError:
    """Return the error for a container that holds itself."""
    return StateError(
        f"{words_for(path)} is one of the containers around it: a cycle",
        hint="Save a name or a number there instead of the container",
    )


def too_deep(path: str) -> LimitError:
    """Return the error for containers that are nested too deep."""
    return LimitError(
        f"{words_for(path)} is nested too deep",
        expected=f"at most {MAX_STATE_DEPTH} levels",
        hint="Save it as a flat list, with indices instead of nesting",
    )


def _hint(value: Any) -> str:
    for is_so, hint in _HINTS:
        if is_so(value):
            return hint if isinstance(hint, str) else hint(value)
    builtin = next((builtin for builtin in _BUILTINS if isinstance(value, builtin)), None)
    if builtin is not None:
        name = builtin.__name__
        return f"Convert it with {name}(...), since only {name} itself comes back exactly"
    return "Save the numbers, text and arrays in it as a dict, or, if the class is yours, make it a dataclass"


def _has(value: Any, *names: str) -> bool:
    return all(hasattr(type(value), name) for name in names)
