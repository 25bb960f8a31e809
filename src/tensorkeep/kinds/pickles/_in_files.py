"""What a conversion needs from several pickles, with the names that their tensors have in the whole checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tensorkeep.kinds.base import LeftOut, StoredView
from tensorkeep.kinds.pickles._file import PickleFile
from tensorkeep.tensors import LazyTensor

Places: TypeAlias = Mapping[str, tuple[PickleFile, str]]
"""Name of a tensor to its file, and its name in that file."""


def records_of(places: Places) -> dict[str, Any]:
    """Return the pickle's record of each tensor."""
    return {name: file.records[own] for name, (file, own) in places.items()}


def views_of(places: Places) -> dict[str, StoredView]:
    """Return where each tensor is stored."""
    views = {id(file): file.views() for file in {id(file): file for file, _ in places.values()}.values()}
    return {name: views[id(file)][own] for name, (file, own) in places.items() if own in views[id(file)]}


def pairs_of(places: Places) -> dict[str, LazyTensor]:
    """Return complex tensors as tensors of real pairs."""
    pairs = {id(file): file.pairs() for file in {id(file): file for file, _ in places.values()}.values()}
    return {name: pairs[id(file)][own] for name, (file, own) in places.items() if own in pairs[id(file)]}


def left_out_of(prefixed: Iterable[tuple[str, PickleFile]]) -> list[LeftOut]:
    """Return the objects that are not known to be data; each file comes with the prefix of its names."""
    return [
        LeftOut(prefix + found.name if found.name else prefix.removesuffix("."), found.path, found.what, is_run=True)
        for prefix, file in prefixed
        for found in file.left_out()
    ]


def refuse_expanded_of(places: Places, names: Iterable[str]) -> None:
    """Refuse tensors much larger in total than their file, such as many views of a few bytes."""
    own_names: dict[int, tuple[PickleFile, list[str]]] = {}
    for name in names:
        if name in places:
            file, own = places[name]
            own_names.setdefault(id(file), (file, []))[1].append(own)
    for file, own_of_file in own_names.values():
        file.refuse_expanded(own_of_file)
