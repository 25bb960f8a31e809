"""The leaves of a state: what has a name of its own in torch.distributed.checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""The keys that lead to a value: texts for those of dicts, numbers for places in lists."""


def leaves_of(tree: Mapping[Any, Any], is_tensor: Callable[[Any], bool]) -> Iterator[tuple[Path, Any]]:
    """Give what has a name of its own: all but dicts, and lists with a dict or a tensor in them."""
    waiting: list[Iterator[tuple[Path, Any]]] = [_entries((), tree)]
    while waiting:
        for path, value in waiting[-1]:
            if _is_taken_apart(value, is_tensor):
                waiting.append(_entries(path, value))
                break
            yield path, value
        else:
            waiting.pop()


def _entries(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        return (((*path, str(key)), inner) for key, inner in value.items())
    return (((*path, place), inner) for place, inner in enumerate(value))


def _is_taken_apart(value: Any, is_tensor: Callable[[Any], bool]) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and any(is_tensor(inner) or _is_taken_apart(inner, is_tensor) for inner in value)


def value_at(tree: Any, path: Path) -> Any:
    """Return what stands at a path."""
    for key in path:
        if isinstance(key, int) or key in tree:
            tree = tree[key]
        else:
            tree = next(value for other, value in tree.items() if str(other) == key)
    return tree
