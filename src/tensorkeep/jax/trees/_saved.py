"""What was saved, looked up by the keys of a template: nested data, or tensors by dotted name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Protocol

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.state import NamedData, joined, text_of_key, words_for

MISSING: Final = object()
"""What a leaf is if nothing was saved for it."""

_END: Final = ("", MISSING)


class Saved(Protocol):
    """One place in what was saved."""

    def children(self, texts: list[str]) -> list[Saved]:
        """Return the places below this one that have these keys, as text."""

    def value(self) -> Any:
        """Return what was saved here; MISSING if nothing."""

    def others(self, texts: list[str]) -> Iterator[str]:
        """Yield the names of leaves here, or below this place under other keys."""

    def unclaimed(self, paths: Collection[str]) -> Iterator[str]:
        """Yield names that are not among the paths of a template's leaves, and that `others` does not yield."""


class Nested:
    """A place in nested data."""

    def __init__(self, value: Any, path: str = "") -> None:
        self._value = value
        self._path = path
        self._children = _children(value, path)

    def children(self, texts: list[str]) -> list[Saved]:
        """Return the places below this one that have these keys, as text."""
        found = self._children or {}
        return [Nested(found.get(text, MISSING), joined(self._path, text)) for text in texts]

    def value(self) -> Any:
        """Return what was saved here."""
        return self._value

    def others(self, texts: list[str]) -> Iterator[str]:
        """Yield the names of leaves here, or below this place under other keys."""
        if self._children is None:
            if self._value is not None and self._value is not MISSING:
                yield self._path
            return
        wanted = set(texts)
        if wanted.issuperset(self._children):
            return
        here = ((text, child) for text, child in self._children.items() if text not in wanted)
        waiting: list[tuple[str, Iterator[tuple[str, Any]]]] = [(self._path, here)]
        seen: set[int] = set()
        while waiting:
            path, items = waiting[-1]
            text, value = next(items, _END)
            if value is MISSING:
                waiting.pop()
                continue
            name = joined(path, text)
            children = _children(value, name)
            if children is None:
                if value is not None:
                    yield name
            elif id(value) not in seen:
                seen.add(id(value))
                waiting.append((name, iter(children.items())))

    def unclaimed(self, paths: Collection[str]) -> Iterator[str]:  # noqa: ARG002
        """Yield nothing: `others` finds all."""
        yield from ()


class ByName:
    """A place in a file that has only names: the tensors whose names begin with its path."""

    def __init__(self, tensors: Mapping[str, Any], path: str = "") -> None:
        self._tensors = tensors
        self._path = path

    def children(self, texts: list[str]) -> list[Saved]:
        """Return the places below this one."""
        return [ByName(self._tensors, joined(self._path, text)) for text in texts]

    def value(self) -> Any:
        """Return the tensor that has this path as its name."""
        return self._tensors.get(self._path, MISSING)

    def others(self, texts: list[str]) -> Iterator[str]:  # noqa: ARG002
        """Yield nothing: `unclaimed` finds all."""
        yield from ()

    def unclaimed(self, paths: Collection[str]) -> Iterator[str]:
        """Yield names that no leaf of a template has."""
        return (name for name in self._tensors if name not in paths)


def refuse_repeats(value: Any) -> None:
    """Refuse nested data that has a container in two places: its walk could take longer than anyone would wait."""
    seen: set[int] = set()
    waiting = [("", value)]
    while waiting:
        path, value = waiting.pop()
        children = _children(value, path)
        if children:
            if id(value) in seen:
                raise UnsupportedError(
                    f"the state has one container in two places, {words_for(path)} and another", hint="Pass like="
                )
            seen.add(id(value))
            waiting.extend((text, child) for text, child in children.items())


def _children(value: Any, path: str) -> dict[str, Any] | None:
    """Return what a container holds, by key as text; None for a leaf."""
    if isinstance(value, NamedData) and value.kind != "enum":
        return value.fields
    if isinstance(value, list | tuple):
        return {str(place): child for place, child in enumerate(value)}
    if not isinstance(value, Mapping):
        return None
    children = {text_of_key(key): child for key, child in value.items()}
    if len(children) < len(value):
        raise FormatError(f"two keys of {words_for(path)} are the same as text", found=f"{len(value)} keys")
    return children
