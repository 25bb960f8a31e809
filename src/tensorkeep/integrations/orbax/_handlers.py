"""Handlers as orbax names them: they say what an item is, which our files say themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.errors import UnsupportedError

_KNOWN: Final = frozenset(
    f"{kind}CheckpointHandler"
    for kind in ("Standard", "PyTree", "Json", "Array", "JaxRandomKey", "NumpyRandomKey", "Composite")
)


class _Handler:
    def __init__(self, *_: Any, **__: Any) -> None: ...


class StandardCheckpointHandler(_Handler):
    """Says that an item is a pytree; all arguments are ignored."""


class PyTreeCheckpointHandler(_Handler):
    """Says that an item is a pytree; all arguments are ignored."""


class JsonCheckpointHandler(_Handler):
    """Says that an item is plain data; all arguments are ignored."""


class ArrayCheckpointHandler(_Handler):
    """Says that an item is an array; all arguments are ignored."""


class JaxRandomKeyCheckpointHandler(_Handler):
    """Says that an item is a random key of JAX; all arguments are ignored."""


class NumpyRandomKeyCheckpointHandler(_Handler):
    """Says that an item is the state of NumPy's random numbers; all arguments are ignored."""


class CompositeCheckpointHandler(_Handler):
    """Says that there are several items; all arguments are ignored."""


def check_handlers(handlers: Any) -> None:
    """Refuse a handler, or one of several by name, of data that is not saved here."""
    for handler in handlers.values() if isinstance(handlers, Mapping) else [handlers]:
        if handler is not None and not {kind.__name__ for kind in type(handler).__mro__} & _KNOWN:
            raise UnsupportedError(
                "items of this kind cannot be saved",
                expected=f"one of {', '.join(sorted(_KNOWN))}",
                found=type(handler).__name__,
                hint="Save what it handles as a pytree or with JsonSave",
            )
