"""Which tensor goes into which file. Pure.

Tensors keep their order and fill one shard after another, as in huggingface_hub and transformers, so the same state
dict and limit give the same files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from tensorkeep.errors import UnsupportedError
from tensorkeep.layout._file_names import index_name, shard_name, weights_name
from tensorkeep.layout._pieces import Piece, TensorSize, cut, pieces_in_order
from tensorkeep.paths import is_plain_name
from tensorkeep.texts import listed


class Shard(msgspec.Struct, frozen=True):
    """What one file will contain: `tensors` whole, by name, and `pieces` of others."""

    file: str
    tensors: tuple[str, ...]
    pieces: tuple[Piece, ...] = ()


class ShardPlan(msgspec.Struct, frozen=True):
    """Which tensor goes into which file.

    Attributes:
        shards: The files.
        index_file: Name of the index; None for a single file, which needs no index.
        splits: Names of the pieces, in order, of each tensor that is cut.
    """

    shards: tuple[Shard, ...]
    index_file: str | None
    splits: dict[str, tuple[str, ...]]

    @property
    def weight_map(self) -> dict[str, str]:
        """Name of each tensor or piece to the file that stores it."""
        return {
            name: shard.file
            for shard in self.shards
            for name in (*shard.tensors, *(piece.name for piece in shard.pieces))
        }


def plan_shards(
    sizes: Mapping[str, TensorSize],
    *,
    max_shard_nbytes: int,
    balance: bool = False,
    split_large: bool = False,
    base: str = "model",
    variant: str | None = None,
) -> ShardPlan:
    """Fill shards with tensors, in order; a tensor above the limit gets a shard of its own."""
    pieces = _cut_large(sizes, max_shard_nbytes) if split_large else {}
    nbytes = _item_nbytes(sizes, pieces)
    capacity = _even_capacity(nbytes.values(), max_shard_nbytes) if balance else max_shard_nbytes
    groups = _fill(nbytes, alone_above=max_shard_nbytes, capacity=capacity)
    if len(groups) == 1:
        files, index_file = [weights_name(base, variant)], None
    else:
        files = [shard_name(base, number, len(groups), variant) for number in range(1, len(groups) + 1)]
        index_file = index_name(base, variant)
    return _plan(dict(zip(files, groups, strict=True)), index_file, pieces)


def plan_from_layout(
    sizes: Mapping[str, TensorSize],
    weight_map: Mapping[str, str],
    *,
    index_file: str,
    splits: Mapping[str, Sequence[str]] | None = None,
) -> ShardPlan:
    """Put each tensor into the file that has it in another checkpoint's layout."""
    pieces = {
        tensor: _pieces_that_fit(tensor, names, sizes[tensor])
        for tensor, names in (splits or {}).items()
        if tensor in sizes and tensor not in weight_map
    }
    groups: dict[str, list[str]] = {}
    names = list(_item_nbytes(sizes, pieces))
    _refuse_without_place([name for name in names if name not in weight_map])
    for name in names:
        groups.setdefault(weight_map[name], []).append(name)
    for file in groups:
        if not is_plain_name(file) or file == index_file:
            raise UnsupportedError("the layout names a file that cannot be written", found=repr(file))
    return _plan(dict(sorted(groups.items())), index_file, pieces)


def _plan(
    groups: Mapping[str, list[str]], index_file: str | None, pieces: Mapping[str, tuple[Piece, ...]]
) -> ShardPlan:
    piece_of = {piece.name: piece for cut_up in pieces.values() for piece in cut_up}
    shards = tuple(
        Shard(
            file,
            tuple(name for name in names if name not in piece_of),
            tuple(piece_of[name] for name in names if name in piece_of),
        )
        for file, names in groups.items()
    )
    return ShardPlan(
        shards, index_file, {tensor: tuple(piece.name for piece in cut_up) for tensor, cut_up in pieces.items()}
    )


def _cut_large(sizes: Mapping[str, TensorSize], max_nbytes: int) -> dict[str, tuple[Piece, ...]]:
    """Return the pieces of each tensor that is above the limit and can be cut."""
    large = {tensor: cut(tensor, size, max_nbytes) for tensor, size in sizes.items() if size.nbytes > max_nbytes}
    return {tensor: pieces for tensor, pieces in large.items() if len(pieces) > 1}


def _item_nbytes(sizes: Mapping[str, TensorSize], pieces: Mapping[str, tuple[Piece, ...]]) -> dict[str, int]:
    """Return the bytes of everything that is stored, in order: each tensor, or its pieces."""
    items: dict[str, int] = {}
    for tensor, size in sizes.items():
        if tensor not in pieces:
            items[tensor] = size.nbytes
            continue
        for piece in pieces[tensor]:
            if piece.name in sizes:
                raise UnsupportedError(
                    f"a piece of `{tensor}` would have the name of another tensor",
                    tensor=tensor,
                    found=f"a tensor `{piece.name}`",
                    hint="Raise the limit, or rename that tensor",
                )
            items[piece.name] = size.nbytes * piece.n_rows // size.shape[0]
    return items


def _fill(nbytes: Mapping[str, int], *, alone_above: int, capacity: int) -> list[list[str]]:
    """Fill one shard after another; an item above the limit goes alone, before the shard that is being filled."""
    groups: list[list[str]] = []
    current: list[str] = []
    current_nbytes = 0
    for name, n in nbytes.items():
        if n > alone_above:
            groups.append([name])
            continue
        if current_nbytes + n > capacity:
            groups.append(current)
            current, current_nbytes = [], 0
        current.append(name)
        current_nbytes += n
    if current or not groups:
        groups.append(current)
    return groups


def _even_capacity(nbytes: Iterable[int], limit: int) -> int:
    """Return the smallest capacity that needs no more shards than the limit does."""
    shared = [n for n in nbytes if n <= limit]
    sums = list(accumulate(shared, initial=0))
    n_shards = _n_shards(sums, limit)
    low, high = max(shared, default=0), min(limit, sums[-1])
    return low + bisect_left(range(low, high), True, key=lambda capacity: _n_shards(sums, capacity) <= n_shards)


def _n_shards(sums: Sequence[int], capacity: int) -> int:
    """Count the shards that are filled by items with these running sums, none larger than the capacity."""
    n_shards = start = 0
    while start < len(sums) - 1:
        start = bisect_right(sums, sums[start] + capacity) - 1
        n_shards += 1
    return n_shards


def _pieces_that_fit(tensor: str, names: Sequence[str], size: TensorSize) -> tuple[Piece, ...]:
    pieces = pieces_in_order(tensor, names)
    n_rows = size.shape[0] if size.shape else 0
    are_rows = pieces is not None and all(piece.is_of_rows for piece in pieces)
    if (
        pieces is None
        or not are_rows
        or pieces[-1].stop != n_rows
        or any(piece.n_rows % size.rows_per_step for piece in pieces)
    ):
        raise UnsupportedError(
            f"the layout's pieces of `{tensor}` do not fit its shape",
            tensor=tensor,
            expected=f"pieces of whole bytes that cover {n_rows:,} rows",
            found=", ".join(names),
        )
    return pieces


def _refuse_without_place(missing: Sequence[str]) -> None:
    if missing:
        raise UnsupportedError(
            f"the layout has no place for {len(missing):,} of the tensors",
            tensor=missing[0],
            found=listed(missing, 20),
            hint="Save without a layout, or add these names to it",
        )
