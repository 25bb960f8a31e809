"""Which part of a tensor a rank has: the one that torch's own placements give it."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Shard
from torch.distributed.tensor.placement_types import _StridedShard

from tensorkeep.models._placement import Cut, local_parts
from tests.support.soak import rounds

PLACEMENTS = st.one_of(
    st.integers(0, 1).map(Shard),
    st.builds(_StridedShard, st.integers(0, 1), split_factor=st.integers(1, 3)),
)


@settings(max_examples=rounds(60, 2_000), deadline=None)
@given(
    shape=st.tuples(st.integers(0, 13), st.integers(0, 5)),
    meshed=st.lists(st.tuples(PLACEMENTS, st.integers(1, 4)), max_size=3),
    data=st.data(),
)
def test_parts_are_those_that_torch_cuts(
    shape: tuple[int, int], meshed: list[tuple[Shard | _StridedShard, int]], data: st.DataObject
) -> None:
    whole = torch.arange(shape[0] * shape[1]).reshape(shape)
    wanted, cuts = whole, []
    for placement, n_places in meshed:
        place = data.draw(st.integers(0, n_places - 1))
        wanted = placement._split_tensor(wanted, n_places, with_padding=False, contiguous=True)[0][place]
        cuts.append(Cut(placement.dim, place, n_places, int(getattr(placement, "split_factor", 1))))

    found = torch.full(tuple(wanted.shape), -1)
    for part in local_parts(shape, cuts):
        found[part.index] = whole[part.region.index]

    assert found.equal(wanted)
