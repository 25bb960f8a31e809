"""What a tensor that is not read yet cannot do: an error says how to read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

_ADVICE: Final = "index it, such as lazy[...], or call .load()"

_ARITHMETIC: Final = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow")
_BITWISE: Final = ("and", "or", "xor", "lshift", "rshift")
_BINARY: Final = (*_ARITHMETIC, *_BITWISE)
_OTHERS: Final = ["lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "setitem"]


class Unread:
    """Raises an error with advice for arithmetic, functions of torch, and attributes that only tensors have."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: to get a tensor, {_ADVICE}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        name = getattr(function, "__name__", "a function of torch")
        raise TypeError(f"{name} needs tensors, and a {cls.__name__} is not read yet: {_ADVICE}")


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: Unread, *operands: Any) -> Any:
        if any(hasattr(type(operand), "__array_interface__") for operand in operands):
            return NotImplemented  # NumPy reads it
        raise TypeError(f"a {type(self).__name__} is not read yet and has no {name}: {_ADVICE}")

    refuse.__name__ = name
    return refuse


for _name in (*_BINARY, *(f"r{name}" for name in _BINARY), *_OTHERS):
    setattr(Unread, f"__{_name}__", _refusal(f"__{_name}__"))
