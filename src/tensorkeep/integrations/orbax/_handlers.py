"""Handlers as orbax names them: they say what an item is, which our files say themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.errors import UnsupportedError

_KNOWN: Final = frozenset({"StandardCheckpointHandler", "PyTreeCheckpointHandler", "JsonCheckpointHandler"})


class _Handler:
    def __init__(self, *_: Any, **__: Any) -> None: ...


class StandardCheckpointHandler(_Handler):
    """Says that an item is a pytree; all arguments are ignored."""


class PyTreeCheckpointHandler(_Handler):
    """Says that an item is a pytree; all arguments are ignored."""


class JsonCheckpointHandler(_Handler):
    """Says that an item is plain data; all arguments are ignored."""


def check_handlers(handlers: Any) -> None:
    """Refuse a handler, or one of several by name, that is not of pytrees or plain data."""
    for handler in handlers.values() if isinstance(handlers, Mapping) else [handlers]:
        if handler is not None and not {kind.__name__ for kind in type(handler).__mro__} & _KNOWN:
            raise UnsupportedError(
                "items of this kind cannot be saved",
                expected=f"a handler of pytrees or plain data: {', '.join(sorted(_KNOWN))}",
                found=type(handler).__name__,
                hint="Save what it handles as a pytree or with JsonSave",
            )
