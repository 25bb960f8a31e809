"""What a conversion asks of several pickles: the answers of each, under the names that its tensors have outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tensorkeep.kinds._convertible import LeftOut, StoredView
from tensorkeep.kinds.pickles._file import PickleFile
from tensorkeep.tensors import LazyTensor

Places: TypeAlias = Mapping[str, tuple[PickleFile, str]]
"""Name to the file of a tensor, and its name in there."""


def records_of(places: Places) -> dict[str, Any]:
    """Return what the pickles say of each tensor."""
    return {name: file.records[own] for name, (file, own) in places.items()}


def views_of(places: Places) -> dict[str, StoredView]:
    """Return where each tensor is stored."""
    views = {id(file): file.views() for file in {id(file): file for file, _ in places.values()}.values()}
    return {name: views[id(file)][own] for name, (file, own) in places.items() if own in views[id(file)]}


def pairs_of(places: Places) -> dict[str, LazyTensor]:
    """Return tensors of complex numbers as tensors of real numbers."""
    pairs = {id(file): file.pairs() for file in {id(file): file for file, _ in places.values()}.values()}
    return {name: pairs[id(file)][own] for name, (file, own) in places.items() if own in pairs[id(file)]}


def left_out_of(prefixed: Iterable[tuple[str, PickleFile]]) -> list[LeftOut]:
    """Return the objects that are not known to be data, of files with what names of theirs begin with."""
    return [
        LeftOut(prefix + found.name if found.name else prefix.removesuffix("."), found.path, found.what)
        for prefix, file in prefixed
        for found in file.left_out()
    ]


def refuse_expanded_of(places: Places, names: Iterable[str]) -> None:
    """Refuse to read tensors that together take many times the size of their file."""
    own_names: dict[int, tuple[PickleFile, list[str]]] = {}
    for name in names:
        if name in places:
            file, own = places[name]
            own_names.setdefault(id(file), (file, []))[1].append(own)
    for file, own_of_file in own_names.values():
        file.refuse_expanded(own_of_file)
