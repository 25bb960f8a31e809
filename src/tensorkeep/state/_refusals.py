"""What to say of a value that is no data: where it stands, what it is, what to do."""

from __future__ import annotations

import io
import types
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from functools import partial
from typing import Any, Final

from tensorkeep.errors import LimitError, StateError
from tensorkeep.limits import MAX_STATE_DEPTH
from tensorkeep.state._keys import words_for

_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial)
_BUILTINS: Final = (dict, list, tuple, set, frozenset, deque, str, int, float, complex, bytes, bytearray)

_HINTS: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (lambda value: isinstance(value, type), "A class is not data: save its name"),
    (lambda value: isinstance(value, _FUNCTIONS), "A function is not data: save its name, and the settings it needs"),
    (lambda value: hasattr(type(value), "state_dict"), "Save what its state_dict() returns"),
    (
        lambda value: isinstance(value, io.IOBase | types.ModuleType | types.CoroutineType | memoryview),
        "It belongs to this process: save the path or name that leads to it, or its bytes",
    ),
    (lambda value: isinstance(value, KeysView | ValuesView | ItemsView), "Save list(...) of it"),
    (lambda value: isinstance(value, Iterator), "An iterator is used up by reading it: save list(...) of it"),
    (lambda value: hasattr(type(value), "acquire"), "A lock belongs to this process: leave it out"),
    (lambda value: _is_a(value, "numpy.ndarray"), "Save numpy.asarray(...) of it, and what else it holds beside it"),
    (
        lambda value: _is_a(value, "torch.Tensor") and _is_on_meta(value),
        "Device meta has no elements: give it memory with to_empty(device=...), and numbers",
    ),
    (lambda value: _is_a(value, "torch.Tensor"), "Save a plain tensor with the same elements"),
    (lambda value: hasattr(type(value), "__array__"), "Save numpy.asarray(...) of it"),
    (lambda value: hasattr(type(value), "model_dump"), "Save what its model_dump() returns"),
)
"""Whether it is of a kind, and what to do then; the first that fits. Only the class is asked, never the
object, but for tensors of torch itself."""


def not_data(value: Any, path: str, role: str = "") -> StateError:
    """Return the error for a value that cannot be saved."""
    found = value if isinstance(value, type) else type(value)
    kind = "the class " if isinstance(value, type) else ""
    return StateError(
        f"{role}{words_for(path)} is no data that can be saved",
        found=f"{kind}{found.__module__}.{found.__qualname__}",
        hint=_hint(value),
    )


def cycle(path: str) -> StateError:
    """Return the error for a container that holds itself."""
    return StateError(
        f"{words_for(path)} is a container that this place lies in: a cycle",
        hint="Save a name or a number there instead of the container",
    )


def too_deep(path: str) -> LimitError:
    """Return the error for containers in containers without end."""
    return LimitError(
        f"{words_for(path)} lies too deep",
        expected=f"at most {MAX_STATE_DEPTH} containers in each other",
        hint="Save what is nested so deep as a list, with numbers for what refers to what",
    )


def _hint(value: Any) -> str:
    for is_so, hint in _HINTS:
        if is_so(value):
            return hint
    builtin = next((builtin for builtin in _BUILTINS if isinstance(value, builtin)), None)
    if builtin is not None:
        name = builtin.__name__
        return f"Convert it with {name}(...), since only {name} itself comes back exactly"
    return "Save what it holds as a dict, or make its class a dataclass"


def _is_on_meta(value: Any) -> bool:
    return type(value).__module__.startswith("torch") and bool(value.is_meta)


def _is_a(value: Any, name: str) -> bool:
    """Say whether a class of that name is among its bases, without importing the library."""
    module, _, cls = name.rpartition(".")
    return any(base.__name__ == cls and base.__module__.split(".")[0] == module for base in type(value).__mro__)
