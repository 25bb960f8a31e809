"""Directories of all ranks, written in one pass over the source and published as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import msgspec

from tensorkeep.checkpoint import (
    DirectoryDestination,
    Place,
    Reservation,
    SaveOptions,
    SavePlan,
    digest_of_file,
    plan_whole,
)
from tensorkeep.digests import NO_DIGEST
from tensorkeep.dtypes import BY_NAME
from tensorkeep.layout import (
    RANK_SET,
    SHARE_KEY,
    RankPart,
    RankSet,
    RankShare,
    ShardRecord,
    emit_index,
    emit_rank_set,
    index_name,
    rank_directory,
)
from tensorkeep.tensor_parallel._divide import Division, Header
from tensorkeep.tensor_parallel._fill import Filled, PartToFill, TensorToFill, spans_in_row
from tensorkeep.tensors import PlaceholderTensor, Prepared, prepare
from tensorkeep.transport import Reserved, publish, publish_directory

FillAll: TypeAlias = Callable[[Sequence[TensorToFill], tuple[Reserved, ...]], Sequence[Filled]]
"""Fills all tensors, wherever the work is done."""


class Shares(msgspec.Struct, frozen=True):
    """What all ranks get.

    Attributes:
        headers: Name to dtype and shape of each whole tensor.
        divisions: The tensors that are divided.
        n_ranks: Number of ranks.
    """

    headers: Mapping[str, Header]
    divisions: Mapping[str, Division]
    n_ranks: int

    def shape_of(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's part of a tensor."""
        shape = self.headers[name].shape
        division = self.divisions.get(name)
        if division is None:
            return shape
        extent = sum(end - begin for begin, end in division.ranges[rank])
        return (*shape[: division.dim], extent, *shape[division.dim + 1 :])

    def share_of(self, rank: int, digests: Mapping[str, bytes]) -> RankShare:
        """Return what the index of a rank says of its parts."""
        parts = {
            name: RankPart(division.dim, division.ranges[rank], self.headers[name].shape, digests[name].hex())
            for name, division in self.divisions.items()
        }
        return RankShare(rank, self.n_ranks, parts)


def write_ranks(
    directory: str, shares: Shares, options: SaveOptions, companions: Mapping[str, bytes], fill_all: FillAll
) -> None:
    """Write the directories of all ranks and their record, complete or not at all."""
    with publish_directory(directory, durable=options.durable) as staging, ExitStack() as abandoned:
        ranks = [rank_directory(rank, shares.n_ranks) for rank in range(shares.n_ranks)]
        destinations: list[tuple[DirectoryDestination, SavePlan, Reservation]] = []
        for rank, name in enumerate(ranks):
            plan = plan_whole(_prepared(shares, rank), options)
            if not rank:
                _refuse_long_index(plan, shares)
            destination = DirectoryDestination(os.path.join(staging, name), plan, options)
            abandoned.callback(destination.abandon)
            destination.open()
            destinations.append((destination, plan, destination.reserve()))
        reserved = tuple(file for *_, reservation in destinations for file in reservation.files)
        filled = fill_all(list(_to_fill(shares, [reservation for *_, reservation in destinations])), reserved)
        whole = {each.name: each.whole for each in filled}
        for rank, (destination, plan, _) in enumerate(destinations):
            destination.collect({each.name: each.parts[rank] for each in filled})
            destination.with_plan(_with_share(plan, shares.share_of(rank, whole))).commit()
            for file, text in companions.items():
                _write(os.path.join(staging, ranks[rank], file), text)
        index = index_name(options.base_name, options.variant)
        found = RankSet({name: digest_of_file(os.path.join(staging, name, index)) for name in ranks})
        _write(os.path.join(staging, RANK_SET), emit_rank_set(found))
        if options.before_commit is not None:
            options.before_commit({})


def _refuse_long_index(plan: SavePlan, shares: Shares) -> None:
    """Refuse tensors that no index can list before anything is written; the indexes of all ranks are as long."""
    share = shares.share_of(0, dict.fromkeys(shares.divisions, bytes.fromhex(NO_DIGEST)))
    emit_index(_with_share(plan, share).index({file: ShardRecord(0, NO_DIGEST) for file in plan.files}))


def _with_share(plan: SavePlan, share: RankShare) -> SavePlan:
    return msgspec.structs.replace(plan, index_metadata={**plan.index_metadata, SHARE_KEY: share.to_json()})


def _write(path: str, text: bytes) -> None:
    with publish(path, durable=False) as sink:
        sink.write([text])


def _prepared(shares: Shares, rank: int) -> Prepared:
    tensors = {
        name: PlaceholderTensor(BY_NAME[header.dtype], shares.shape_of(name, rank), "")
        for name, header in shares.headers.items()
    }
    return prepare(tensors, is_flat_bare=True)


def _to_fill(shares: Shares, reservations: Sequence[Reservation]) -> Iterator[TensorToFill]:
    first_file = [0]
    for reservation in reservations:
        first_file.append(first_file[-1] + len(reservation.files))
    for name, header in shares.headers.items():
        bits = BY_NAME[header.dtype].bits
        division = shares.divisions.get(name) or _undivided(header.shape, shares.n_ranks)
        parts = []
        for rank, reservation in enumerate(reservations):
            place = reservation.places[name]
            spans = spans_in_row(division.ranges[rank], header.shape or (1,), division.dim, bits)
            parts.append(PartToFill(Place(first_file[rank] + place.file, place.start), spans))
        row = spans_in_row([(0, (header.shape or (1,))[division.dim])], header.shape or (1,), division.dim, bits)
        yield TensorToFill(name, header.dtype, header.shape, row[0][1], tuple(parts))


def _undivided(shape: tuple[int, ...], n_ranks: int) -> Division:
    return Division(0, (((0, shape[0] if shape else 1),),) * n_ranks)
