"""What each rank writes and reads, when it is known what is saved. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from heapq import heapify, heapreplace

import msgspec

from tensorkeep.checkpoint import Place
from tensorkeep.integrations.distributed._layout import Gathered
from tensorkeep.layout import piece_name
from tensorkeep.tensors import Region
from tensorkeep.transport import Reserved


class Writing(msgspec.Struct, frozen=True):
    """One part of a tensor that a rank writes.

    Attributes:
        item: Its place in the plan of the rank.
        name: The tensor's, in the file.
        place: Where the tensor goes.
        is_whole: Whether the part is the whole tensor, so that its digest is made on its way.
    """

    item: int
    name: str
    place: Place
    is_whole: bool


class Digesting(msgspec.Struct, frozen=True):
    """A tensor that several ranks write, and one makes the digest of.

    Attributes:
        name: The tensor's.
        place: Where it is.
        nbytes: Its size in bytes.
    """

    name: str
    place: Place
    nbytes: int


class Task(msgspec.Struct, frozen=True):
    """What one rank does.

    Attributes:
        files: The files of the save.
        writings: What it writes.
        digestings: What it reads when all have written.
    """

    files: tuple[Reserved, ...]
    writings: list[Writing]
    digestings: list[Digesting]


def tasks_for(
    gathered: Gathered, names: Mapping[str, str], places: Mapping[str, Place], files: tuple[Reserved, ...]
) -> list[Task]:
    """Share out the work of writing tensors that stand whole in the files."""
    tasks = [Task(files, [], []) for _ in range(gathered.n_ranks)]
    loads = [(0, rank) for rank in range(gathered.n_ranks)]
    heapify(loads)
    for planned, held in sorted(gathered.tensors.items(), key=lambda item: -item[1].nbytes):
        name = names[planned]
        if name not in places:
            continue
        place = places[name]
        is_whole = len(held.parts) == 1
        for rank, item, _ in held.parts:
            tasks[rank].writings.append(Writing(item, name, place, is_whole))
        if not is_whole:
            load, rank = loads[0]
            heapreplace(loads, (load + held.nbytes, rank))
            tasks[rank].digestings.append(Digesting(name, place, held.nbytes))
    return tasks


def pieces_by_rank(
    gathered: Gathered, names: Mapping[str, str], stored: Container[str]
) -> list[dict[str, list[Region]]]:
    """Return what each rank has of the tensors, in the elements of the format."""
    pieces: list[dict[str, list[Region]]] = [{} for _ in range(gathered.n_ranks)]
    for planned, held in gathered.tensors.items():
        if names[planned] in stored:
            if not held.parts:  # no elements at all
                pieces[0][names[planned]] = [Region((0,) * len(held.shape), held.stored_shape)]
            for rank, _, region in held.parts:
                pieces[rank].setdefault(names[planned], []).append(held.stored_region(region))
    return pieces


def tasks_for_pieces(
    gathered: Gathered, names: Mapping[str, str], places: Mapping[str, Place], files: tuple[Reserved, ...]
) -> list[Task]:
    """Share out the work of writing pieces, of which each stands in a file of its rank."""
    tasks = [Task(files, [], []) for _ in range(gathered.n_ranks)]
    for piece, (rank, item) in _items_of(gathered, names).items():
        if piece in places:
            tasks[rank].writings.append(Writing(item, piece, places[piece], is_whole=True))
    for planned, held in gathered.tensors.items():
        if not held.parts and names[planned] in places:
            tasks[0].digestings.append(Digesting(names[planned], places[names[planned]], 0))
    return tasks


def files_by_rank(
    gathered: Gathered, names: Mapping[str, str], files: Mapping[str, Iterable[str]]
) -> list[dict[str, dict[str, int]]]:
    """Share out whole files, each of which holds pieces of one rank."""
    items = _items_of(gathered, names)
    of_ranks: list[dict[str, dict[str, int]]] = [{} for _ in range(gathered.n_ranks)]
    for file, pieces in files.items():
        known = [piece for piece in pieces if piece in items]
        rank = items[known[0]][0] if known else 0
        of_ranks[rank][file] = {piece: items[piece][1] for piece in known}
    return of_ranks


def _items_of(gathered: Gathered, names: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return the name of each piece to the rank that has it, and its place in the plan of that rank."""
    return {
        piece_name(names[planned], held.stored_region(region), held.stored_shape): (rank, item)
        for planned, held in gathered.tensors.items()
        for rank, item, region in held.parts
    }
