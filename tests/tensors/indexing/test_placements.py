"""Parts of ranks against those that DTensor computes."""

from __future__ import annotations

from math import prod
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from tensorkeep.errors import SelectionError, UnsupportedError
from tensorkeep.tensors import Placement, Sharded, coordinate_of, region_of_rank

SHAPES = st.lists(st.integers(0, 17), min_size=2, max_size=3).map(tuple)
MESHES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def of_torch(placement: Placement) -> Any:
    if placement is None:
        return Replicate()
    if placement.split_factor > 1:
        return _StridedShard(placement.dim, split_factor=placement.split_factor)
    return Shard(placement.dim)


def compare(shape: tuple[int, ...], mesh: tuple[int, ...], placements: list[Placement]) -> None:
    for rank in range(prod(mesh)):
        coordinate = list(coordinate_of(rank, mesh))
        sizes, offsets = _compute_local_shape_and_global_offset(
            shape, mesh, coordinate, [of_torch(placement) for placement in placements]
        )

        region = region_of_rank(shape, mesh, placements, rank)

        assert region.shape == sizes
        if prod(sizes):
            assert region.starts == offsets


@given(shape=SHAPES, mesh=MESHES, data=st.data())
def test_plain_cuts(shape: tuple[int, ...], mesh: tuple[int, ...], data: st.DataObject) -> None:
    dims = st.none() | st.builds(Sharded, st.integers(0, len(shape) - 1))
    compare(shape, mesh, [data.draw(dims) for _ in mesh])


@given(rows=st.integers(0, 64), data=st.integers(1, 4), tensor=st.integers(1, 4))
def test_fsdp_over_tensor_parallelism(rows: int, data: int, tensor: int) -> None:
    """Each of the ranks of tensor parallelism has one range, which FSDP cuts again."""
    rows -= rows % (data * tensor)
    compare((rows, 3), (data, tensor), [Sharded(0, split_factor=tensor), Sharded(0)])


def test_what_is_no_single_range_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="several ranges"):
        region_of_rank((8,), (2,), [Sharded(0, split_factor=2)], 0)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(SelectionError, match="there is no rank 4 of 4"):
        region_of_rank((8,), (2, 2), [None, None], 4)
    with pytest.raises(SelectionError, match="no dimension 1"):
        region_of_rank((8,), (2,), [Sharded(1)], 0)
