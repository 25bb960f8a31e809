"""Arguments that two functions share are explained once in the source, and in the help of both."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent
from typing import Any, Final, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_ARGS: Final = "Args:\n"
_argument = re.compile(r"^    \*{0,2}(\w+): .*\n(?:(?:     .*)?\n)*?(?=    [\w*]|\n|\Z)", re.MULTILINE)


def same_arguments_as(other: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Add what another function explains of shared arguments, in its order, to the docstring of a function."""

    def complete(function: _Function) -> _Function:
        if function.__doc__ and other.__doc__:  # both are missing under `python -OO`
            before, own, after = _parts(function.__doc__)
            explained = _parts(other.__doc__)[1] | own
            names = function.__annotations__
            function.__doc__ = before + "".join(explained[name] for name in names if name in explained) + after
        return function

    return complete


def _parts(doc: str) -> tuple[str, dict[str, str], str]:
    """Divide a docstring into what is before its arguments, each argument's text, and what is after them."""
    first, _, rest = doc.partition("\n")
    text = f"{first}\n{dedent(rest)}"
    start = text.index(_ARGS) + len(_ARGS)
    stop = text.find("\n\n", start) + 1 or len(text)
    listed = text[start:stop]
    return text[:start], {found[1]: found[0] for found in _argument.finditer(listed)}, text[stop:]
