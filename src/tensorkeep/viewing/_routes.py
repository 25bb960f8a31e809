"""What each name below `api/` answers. Queries are read here, and each is read to its end before work begins."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing import answers
from tensorkeep.viewing._query import Query
from tensorkeep.viewing._shelf import Shelf, Shown
from tensorkeep.viewing._work import Work

_MAX_PLACE: Final = 2**31

Route = Callable[[Query, Shelf], Any]
"""Takes a query and what is shown; returns an answer that JSON has, or the `Work` that makes one."""


def _about(query: Query, shelf: Shelf) -> Any:
    query.end()
    return {
        "sides": [
            {"of": side.of, "path": side.shown_path, "is_store": side.store is not None, "first": side.first}
            for side in shelf.sides.values()
        ],
    }


def _tree(query: Query, shelf: Shelf) -> Any:
    shown = _checkpoint(query, shelf)
    query.end()
    return answers.catalog(shown.of, shown.opened, shown.names)


def _statistics(query: Query, shelf: Shelf) -> Work:
    shown, lazy = _tensor(query, shelf)
    query.end()
    return Work(lambda outbox: answers.measured(lazy, outbox.progress), ("statistics", *_identity(shown, lazy)))


def _checkpoint(query: Query, shelf: Shelf, name: str = "of") -> Shown:
    return shelf.checkpoint(query.text(name, "a"))


def _tensor(query: Query, shelf: Shelf, of: str = "of", t: str = "t") -> tuple[Shown, LazyTensor]:
    shown = _checkpoint(query, shelf, of)
    return shown, shown.tensor(query.integer(t, 0, _MAX_PLACE))


def _identity(shown: Shown, lazy: LazyTensor) -> tuple[Hashable, ...]:
    """Return what is equal only for equal elements: the digest, or else the place in what is open."""
    digest = lazy.digest
    return (shown.number, lazy.name) if digest is None else (digest, lazy.dtype, lazy.shape)


ROUTES: Final[dict[str, Route]] = {
    "about": _about,
    "tree": _tree,
    "statistics": _statistics,
}
"""Name below `api/` to what answers it."""
