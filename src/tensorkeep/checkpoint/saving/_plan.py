"""Which files a save writes, what each holds, and the index over them. Only the index of a layout is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from tensorkeep.arrays import StreamedTensor, TensorToWrite, tensor_to_write
from tensorkeep.buffers import cut
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.dtypes import BY_NAME
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import (
    Index,
    PiecedTensor,
    Shard,
    ShardPlan,
    ShardRecord,
    TensorSize,
    index_name,
    index_of_pieces,
    piece_name,
    plan_from_layout,
    plan_shards,
    renamed_shard,
    shard_name,
)
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.tensors import LazyTensor, PlaceholderTensor, Prepared, Region, StoredInPieces, StoredTensor
from tensorkeep.transport import ByteRange


class SavePlan(msgspec.Struct, frozen=True):
    """The files of one save.

    Attributes:
        prepared: The tensors and the state they belong to.
        files: File name to what the file holds: name of a tensor, or of a piece of one, to its description.
        index_file: Name of the index; None for a single file that needs none.
        metadata: Free text for the header of every file, with the names of tied tensors.
        index_metadata: Members of the index beside the sizes.
        splits: Tensors that are split by rows, each with the names of its pieces in order.
        regions: Where files hold what single writers have: which file holds which region of each tensor.
    """

    prepared: Prepared
    files: dict[str, dict[str, TensorToWrite]]
    index_file: str | None
    metadata: Mapping[str, str] | None
    index_metadata: Mapping[str, Any]
    splits: Mapping[str, tuple[str, ...]]
    regions: Mapping[str, PiecedTensor] | None = None

    def __post_init__(self) -> None:
        if self.index_file is not None:
            self.prepared.check_length(MAX_INDEX_NBYTES, json.dumps)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.prepared.to_write.values())

    def nbytes_of(self, file: str) -> int:
        """Return the bytes of tensors in a file."""
        return sum(tensor.nbytes for tensor in self.files[file].values())

    def index(self, records: Mapping[str, ShardRecord]) -> Index:
        """Return the index of the files, once their sizes and digests are known."""
        if self.regions is not None:
            return index_of_pieces(self.regions, records, metadata=self.index_metadata, state=self.prepared.state)
        tensors = self.prepared.to_write.values()
        totals = {"total_parameters": sum(prod(tensor.shape) for tensor in tensors), "total_size": self.nbytes}
        return Index(
            {name: file for file, names in self.files.items() for name in names},
            {**self.index_metadata, **totals},
            dict(records),
            dict(self.splits),
            self.prepared.state,
        )


def plan_whole(prepared: Prepared, options: SaveOptions) -> SavePlan:
    """Plan files that hold tensors whole, or in rows where the options split large ones."""
    shards = _shards_of(prepared.to_write, options)
    index_file = shards.index_file
    if index_file is None and options.needs_index:
        index_file = index_name(options.base_name, options.variant)
    return SavePlan(
        prepared,
        {shard.file: _tensors_of(shard, prepared) for shard in shards.shards},
        index_file,
        prepared.with_ties(prepared.metadata if options.metadata is None else options.metadata),
        options.index_metadata or {},
        shards.splits,
    )


def plan_pieces(
    prepared: Prepared, pieces: Sequence[Mapping[str, Sequence[Region]]], options: SaveOptions
) -> SavePlan:
    """Plan files that each hold what one writer has: `pieces[writer][tensor]` are its parts of the tensor."""
    groups: list[dict[str, TensorToWrite]] = []
    regions: dict[str, dict[Region, int]] = {name: {} for name in prepared.to_write}
    for parts_of_writer in _with_unclaimed(prepared.to_write, pieces):
        room = 0
        for name, region in ((name, region) for name, parts in parts_of_writer.items() for region in parts):
            tensor = prepared.to_write[name]
            piece = _piece_of(tensor, region)
            if not room or piece.nbytes > room:  # a file never holds pieces of two writers
                groups.append({})
                room = options.max_shard_nbytes
            room -= piece.nbytes
            groups[-1][piece_name(name, region, tensor.shape)] = piece
            regions[name][region] = len(groups) - 1
    groups = groups or [{}]
    n_files = len(groups)
    files = [shard_name(options.base_name, number, n_files, options.variant) for number in range(1, n_files + 1)]
    tensors: dict[str, PiecedTensor] = {}
    for name, tensor in prepared.to_write.items():
        holders = {region: files[number] for region, number in regions[name].items()}
        tensors[name] = PiecedTensor(tensor.dtype.name, tensor.shape, holders)
    return SavePlan(
        prepared,
        dict(zip(files, groups, strict=True)),
        index_name(options.base_name, options.variant),
        prepared.with_ties(prepared.metadata if options.metadata is None else options.metadata),
        options.index_metadata or {},
        splits={},
        regions=tensors,
    )


def _shards_of(to_write: Mapping[str, TensorToWrite], options: SaveOptions) -> ShardPlan:
    base, variant = options.base_name, options.variant
    sizes = {name: TensorSize(tensor.nbytes, _rows_shape(tensor)) for name, tensor in to_write.items()}
    if options.layout is None:
        return plan_shards(
            sizes,
            max_shard_nbytes=options.max_shard_nbytes,
            balance=options.balance,
            split_large=options.split_large,
            base=base,
            variant=variant,
        )
    layout = options.layout if isinstance(options.layout, Index) else read_index(os.fspath(options.layout))
    weight_map = {name: renamed_shard(file, options.stem) for name, file in layout.weight_map.items()}
    return plan_from_layout(sizes, weight_map, index_file=index_name(base, variant), splits=layout.splits)


def _rows_shape(tensor: TensorToWrite) -> tuple[int, ...]:
    """Return the shape that rows are cut from, or () where a row is not a whole number of bytes."""
    is_known = tensor.dtype.name in BY_NAME
    return tensor.shape if is_known and not (tensor.dtype.is_packed and len(tensor.shape) < 2) else ()


def _tensors_of(shard: Shard, prepared: Prepared) -> dict[str, TensorToWrite]:
    to_write = {name: prepared.to_write[name] for name in shard.tensors}
    for piece in shard.pieces:
        tensor = prepared.tensors.get(piece.tensor)
        to_write[piece.name] = _rows_of(tensor, prepared.to_write[piece.tensor], piece.start, piece.stop)
    return to_write


def _rows_of(tensor: Any, whole: TensorToWrite, start: int, stop: int) -> TensorToWrite:
    """Describe the rows [start, stop) of a tensor without a copy of it."""
    if tensor is not None and not isinstance(tensor, LazyTensor):
        return tensor_to_write(tensor[start:stop], "")
    shape = (stop - start, *whole.shape[1:])
    begin, end = (whole.nbytes * row // whole.shape[0] for row in (start, stop))
    if isinstance(whole, StoredTensor):
        span = ByteRange(whole.span.start + begin, whole.span.start + end)
        return StoredTensor(whole.dtype, shape, end - begin, whole.source, span)
    if isinstance(whole, StoredInPieces):
        return StreamedTensor(whole.dtype, shape, end - begin, lambda: whole.run(begin, end), whole.extent)
    return StreamedTensor(whole.dtype, shape, end - begin, lambda: cut(whole.buffers(), begin, end), whole.extent)


def _with_unclaimed(
    to_write: Mapping[str, TensorToWrite], pieces: Sequence[Mapping[str, Sequence[Region]]]
) -> Iterator[Mapping[str, Sequence[Region]]]:
    """Add the tensors that no writer has a part of, whole, to what the first writer has."""
    claimed = {name for parts in pieces for name in parts}
    for number, parts in enumerate(pieces):
        unclaimed = {name: (_all_of(tensor.shape),) for name, tensor in to_write.items() if name not in claimed}
        yield {**parts, **unclaimed} if number == 0 else parts


def _all_of(shape: tuple[int, ...]) -> Region:
    return Region((0,) * len(shape), shape)


def _piece_of(tensor: TensorToWrite, region: Region) -> TensorToWrite:
    if region.shape == tensor.shape:
        return tensor
    return PlaceholderTensor(tensor.dtype, region.shape, "").tensor_to_write()
