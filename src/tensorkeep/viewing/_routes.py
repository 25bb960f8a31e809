"""What each name below `api/` answers. Queries are read here, to their ends, before anything else is done."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from tensorkeep.sampling import Window
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing import answers
from tensorkeep.viewing._query import Query, QueryError
from tensorkeep.viewing._shelf import Shelf, Shown
from tensorkeep.viewing._work import Work

_MAX_PLACE: Final = 2**31
_MAX_SIDE: Final = 512
"""Rows and columns of a heatmap."""

_SIDE: Final = 256
_MAX_POINTS: Final = 4096
_POINTS: Final = 1024
_MAX_TABLE: Final = (200, 100)
"""Rows and columns of a table of values."""

_TABLE: Final = (50, 20)
_MAX_DEPTH: Final = 200
"""Levels of nested values."""

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


def _store(query: Query, shelf: Shelf) -> Any:
    side = shelf.side(query.text("of", "a"))
    query.end()
    return answers.steps(side.of, side.shown_path, side.required_store)


def _tree(query: Query, shelf: Shelf) -> Any:
    shown = _checkpoint(query, shelf)
    query.end()
    return answers.catalog(shown.of, shown.opened, shown.names)


def _facts(query: Query, shelf: Shelf) -> Any:
    shown = _checkpoint(query, shelf)
    query.end()
    return answers.facts(shown.of, shown.opened, shown.path)


def _state(query: Query, shelf: Shelf) -> Any:
    shown = _checkpoint(query, shelf)
    node = query.path("node", _MAX_DEPTH)
    start = query.integer("start", 0, _MAX_PLACE, 0)
    query.end()
    return answers.outline(shown.tree, node, start, shown.places)


def _tensor_facts(query: Query, shelf: Shelf) -> Any:
    shown, lazy = _tensor(query, shelf)
    query.end()
    return answers.tensor_facts(shown.of, shown.places[lazy.name], lazy, shown.opened, shown.places)


def _sample(query: Query, shelf: Shelf) -> Any:
    tensors = _tensors(query, shelf)
    window = _window(query, tensors[0])
    height = query.integer("height", 1, _MAX_SIDE, _SIDE)
    width = query.integer("width", 1, _MAX_SIDE, _SIDE)
    query.end()
    return answers.heatmap(tensors, window, height, width)


def _line(query: Query, shelf: Shelf) -> Any:
    tensors = _tensors(query, shelf)
    shape = tensors[0].shape
    if not shape:
        raise QueryError("the tensor has no dimensions")
    dim = query.integer("dim", 0, len(shape) - 1, len(shape) - 1)
    at = query.positions("at", shape)
    span = query.span("range", shape[dim] if tensors[0].n_elements else 0)
    n_points = query.integer("points", 1, _MAX_POINTS, _POINTS)
    query.end()
    return answers.line(tensors, at, dim, span, n_points)


def _values(query: Query, shelf: Shelf) -> Any:
    _, lazy = _tensor(query, shelf)
    window = _window(query, lazy, _TABLE)
    query.end()
    return answers.values(lazy, window.corner(*_MAX_TABLE))


def _statistics(query: Query, shelf: Shelf) -> Work:
    shown, lazy = _tensor(query, shelf)
    query.end()
    return Work(lambda outbox: answers.measured(lazy, outbox.progress), ("statistics", *_identity(shown, lazy)))


def _spectrum(query: Query, shelf: Shelf) -> Work:
    shown, lazy = _tensor(query, shelf)
    window = _window(query, lazy)
    query.end()
    answers.refuse_large(window)
    return Work(
        lambda outbox: answers.spectrum(lazy, window, outbox.progress),
        ("spectrum", window, *_identity(shown, lazy)),
    )


def _survey(query: Query, shelf: Shelf) -> Work:
    shown = _checkpoint(query, shelf)
    query.end()
    return Work(lambda outbox: answers.survey(shown.opened, shown.names, outbox))


def _compare(query: Query, shelf: Shelf) -> Work:
    a, b = (shelf.checkpoint(query.text(name, name)) for name in "ab")
    query.end()
    return Work(answers.Comparison(a.opened, b.opened, a.places, b.places).run)


def _difference(query: Query, shelf: Shelf) -> Work:
    pairs = [_tensor(query, shelf, name, f"t{name}", name) for name in "ab"]
    query.end()
    (_, a), (_, b) = pairs
    answers.refuse_other_shape(a, b)

    key = ("difference", *(_identity(*pair) for pair in pairs))
    return Work(lambda outbox: answers.difference(a, b, outbox.progress), key)


def _verify(query: Query, shelf: Shelf) -> Work:
    shown = _checkpoint(query, shelf)
    query.end()
    variant, engine = shown.options.variant, shown.options.engine
    return Work(lambda outbox: answers.verification(shown.path, variant, engine, shown.places, outbox.progress))


def _scan(query: Query, shelf: Shelf) -> Work:
    shown = _checkpoint(query, shelf)
    query.end()
    return Work(lambda outbox: answers.scan_report(shown.path, outbox.progress))


def _checkpoint(query: Query, shelf: Shelf, name: str = "of", default: str = "a") -> Shown:
    return shelf.checkpoint(query.text(name, default))


def _tensor(query: Query, shelf: Shelf, of: str = "of", t: str = "t", default: str = "a") -> tuple[Shown, LazyTensor]:
    shown = _checkpoint(query, shelf, of, default)
    return shown, shown.tensor(query.integer(t, 0, _MAX_PLACE))


def _tensors(query: Query, shelf: Shelf) -> list[LazyTensor]:
    """Take a tensor, and the one that is subtracted from it, if any is."""
    _, lazy = _tensor(query, shelf)
    if not query.has("minus"):
        return [lazy]
    _, other = _tensor(query, shelf, "minus", "minus_t")
    answers.refuse_other_shape(lazy, other)
    return [lazy, other]


def _window(query: Query, lazy: LazyTensor, shown: tuple[int, int] = (2**63, 2**63)) -> Window:
    """Take a plane, and ranges of its rows and columns; the first ones shown if none are given."""
    shape = lazy.shape
    n = min(len(shape), 2)
    dims = query.dims("dims", len(shape), tuple(range(len(shape) - n, len(shape))))
    extents = (1, 1, *(shape[dim] for dim in dims))[-2:] if lazy.n_elements else (0, 0)
    at = query.positions("at", shape)
    rows, columns = (
        query.span(name, extent, most) for name, extent, most in zip(("rows", "columns"), extents, shown, strict=True)
    )
    return Window(dims, at, rows, columns)


def _identity(shown: Shown, lazy: LazyTensor) -> tuple[Hashable, ...]:
    """Return what is equal only for equal elements: the digest, or else the place in what is open."""
    digest = lazy.digest
    return (shown.number, lazy.name) if digest is None else (digest, lazy.dtype, lazy.shape)


ROUTES: Final[dict[str, Route]] = {
    "about": _about,
    "store": _store,
    "tree": _tree,
    "facts": _facts,
    "state": _state,
    "tensor": _tensor_facts,
    "sample": _sample,
    "line": _line,
    "values": _values,
    "statistics": _statistics,
    "spectrum": _spectrum,
    "survey": _survey,
    "compare": _compare,
    "difference": _difference,
    "verify": _verify,
    "scan": _scan,
}
"""Name below `api/` to what answers it."""
