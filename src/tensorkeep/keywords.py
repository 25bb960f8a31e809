"""Functions whose options are keywords, with an error that names them for options passed by position."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def options_by_keyword(name: str, n_positional: int, advice: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Refuse more than so many positional arguments with advice."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if len(args) > n_positional:
                extra = args[n_positional]
                found = repr(extra)[:100] if isinstance(extra, str) else f"a {type(extra).__name__}"
                raise TypeError(f"{name} does not take {found} by position: {advice}")
            return function(*args, **kwargs)

        return checked

    return decorate
