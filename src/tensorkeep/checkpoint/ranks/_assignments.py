"""What each rank writes and reads in a planned save. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from heapq import heapify, heapreplace

import msgspec

from tensorkeep.checkpoint.ranks._rank_plan import RankedTensors
from tensorkeep.checkpoint.saving import Place, Reservation, UploadSpec
from tensorkeep.formats.safetensors import Arrangement
from tensorkeep.layout import piece_name
from tensorkeep.tensors import Region
from tensorkeep.transport import Reserved


class PartToWrite(msgspec.Struct, frozen=True):
    """One part of a tensor that a rank writes.

    Attributes:
        item: Its place in the rank's list of parts.
        name: Name of the tensor in the file.
        place: Where the tensor goes.
        is_whole: Whether the part is the whole tensor of the file, so that its digest is made while it is written.
    """

    item: int
    name: str
    place: Place
    is_whole: bool


class TensorToDigest(msgspec.Struct, frozen=True):
    """A tensor that several ranks write, and that one of them digests.

    Attributes:
        name: Name of the tensor.
        place: Where it is.
        nbytes: Its size in bytes.
    """

    name: str
    place: Place
    nbytes: int


class FillAssignment(msgspec.Struct, frozen=True, tag="fill"):
    """What one rank does in files that all ranks see.

    Attributes:
        files: The files of the save.
        parts: What the rank writes.
        digests: Tensors that it reads and digests when all ranks have written.
    """

    files: tuple[Reserved, ...]
    parts: list[PartToWrite]
    digests: list[TensorToDigest]


class UploadAssignment(msgspec.Struct, frozen=True, tag="upload"):
    """Files that one rank sends to a store.

    Attributes:
        spec: How they are sent.
        files: Name of a file in the plan to the pieces in it, each with its place in the rank's list of parts. The
            first rank adds the tensors that came with values that are not tensors.
        key: Id of the key that all ranks must have; None if nothing is encrypted.
    """

    spec: UploadSpec
    files: dict[str, dict[str, int]]
    key: str | None = None


class EncryptAssignment(msgspec.Struct, frozen=True, tag="encrypt"):
    """Encrypted files that one rank writes alone, in a directory that all see.

    Attributes:
        files: Name of a file to the pieces in it, as in an upload.
        reserved: Name of each of these files to the file that is made for it.
        index_file: Name of the index.
        metadata: Free text for the header of each file.
        arrangement: Where tensors go in a file.
        key: Id of the key that all ranks must have.
    """

    files: dict[str, dict[str, int]]
    reserved: dict[str, Reserved]
    index_file: str
    metadata: Mapping[str, str] | None
    arrangement: Arrangement
    key: str


Assignment = FillAssignment | UploadAssignment | EncryptAssignment


def assign_tensors(ranked: RankedTensors, names: Mapping[str, str], reserved: Reservation) -> list[FillAssignment]:
    """Assign the parts of tensors that are whole in the files, and balance the digests over the ranks by bytes."""
    assignments = [FillAssignment(reserved.files, [], []) for _ in range(ranked.n_ranks)]
    loads = [(0, rank) for rank in range(ranked.n_ranks)]
    heapify(loads)
    for planned, tensor in sorted(ranked.tensors.items(), key=lambda item: -item[1].nbytes):
        name = names[planned]
        if name not in reserved.places:
            continue
        place = reserved.places[name]
        is_whole = len(tensor.parts) == 1
        for rank, item, _ in tensor.parts:
            assignments[rank].parts.append(PartToWrite(item, name, place, is_whole))
        if not is_whole:
            load, rank = loads[0]
            heapreplace(loads, (load + tensor.nbytes, rank))
            assignments[rank].digests.append(TensorToDigest(name, place, tensor.nbytes))
    return assignments


def pieces_by_rank(
    ranked: RankedTensors, names: Mapping[str, str], stored: Container[str]
) -> list[dict[str, list[Region]]]:
    """Return which regions of the stored tensors each rank has, in elements as a header counts them."""
    pieces: list[dict[str, list[Region]]] = [{} for _ in range(ranked.n_ranks)]
    for planned, tensor in ranked.tensors.items():
        if names[planned] in stored:
            if not tensor.parts:  # a tensor without elements
                pieces[0][names[planned]] = [Region((0,) * len(tensor.shape), tensor.stored_shape)]
            for rank, _, region in tensor.parts:
                pieces[rank].setdefault(names[planned], []).append(tensor.stored_region(region))
    return pieces


def assign_pieces(ranked: RankedTensors, names: Mapping[str, str], reserved: Reservation) -> list[FillAssignment]:
    """Assign pieces, each in a file of its own rank."""
    assignments = [FillAssignment(reserved.files, [], []) for _ in range(ranked.n_ranks)]
    for piece, (rank, item) in _items_of(ranked, names).items():
        if piece in reserved.places:
            assignments[rank].parts.append(PartToWrite(item, piece, reserved.places[piece], is_whole=True))
    for planned, tensor in ranked.tensors.items():
        name = names[planned]
        if not tensor.parts and name in reserved.places:
            assignments[0].digests.append(TensorToDigest(name, reserved.places[name], 0))
    return assignments


def assign_files(
    ranked: RankedTensors, names: Mapping[str, str], files: Mapping[str, Iterable[str]]
) -> list[dict[str, dict[str, int]]]:
    """Assign whole files, each with the pieces of one rank."""
    items = _items_of(ranked, names)
    assigned: list[dict[str, dict[str, int]]] = [{} for _ in range(ranked.n_ranks)]
    for file, pieces in files.items():
        known = [piece for piece in pieces if piece in items]
        rank = items[known[0]][0] if known else 0
        assigned[rank][file] = {piece: items[piece][1] for piece in known}
    return assigned


def _items_of(ranked: RankedTensors, names: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return the name of each piece to the rank that has it and the piece's place in that rank's list of parts."""
    return {
        piece_name(names[planned], tensor.stored_region(region), tensor.stored_shape): (rank, item)
        for planned, tensor in ranked.tensors.items()
        for rank, item, region in tensor.parts
    }
