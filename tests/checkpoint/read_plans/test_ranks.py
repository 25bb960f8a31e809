"""What ranks would read, against what they have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import tensorkeep
from tensorkeep.checkpoint import RankPlan, StoredPart, parts_of, sharded_along
from tensorkeep.errors import SelectionError
from tensorkeep.tensors import Placement, Region, Sharded, region_of_rank


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[StoredPart], dict[str, Sequence[Placement]], tuple[int, ...]]:
    """Draw tensors one behind another in two files, some in two halves, a mesh, and how each is placed on it."""
    mesh = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    parts, placed = [], {}
    ends = {"a": 8, "b": 0}
    for number in range(draw(st.integers(1, 5))):
        shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
        name, bits = f"t{number}", draw(st.sampled_from([8, 16, 32]))
        at = draw(st.integers(1, shape[-1])) if shape and draw(st.booleans()) else 0
        zeros = (0,) * len(shape)
        halves = (
            [Region((*zeros[:-1], at), shape), Region(zeros, (*shape[:-1], at))] if at else [Region(zeros, shape)]
        )
        for region in halves:
            if region.n_elements:
                file = draw(st.sampled_from(["a", "b"]))
                parts.append(StoredPart(name, shape, region, bits, file, ends[file]))
                ends[file] += region.n_elements * bits // 8
        dims = st.none() | st.integers(0, len(shape) - 1).map(Sharded) if shape else st.none()
        placed[name] = [draw(dims) for _ in mesh]
    return parts, placed, mesh


def bytes_of(part: StoredPart, region: Region) -> list[int]:
    """Return each byte of a part that holds some of a region."""
    common = part.region.common(region)
    if common is None:
        return []
    size = part.bits // 8
    places = np.arange(part.region.n_elements).reshape(part.region.shape)
    index = tuple(
        slice(start - first, stop - first)
        for start, stop, first in zip(common.starts, common.stops, part.region.starts, strict=True)
    )
    firsts = part.start + places[index].reshape(-1) * size
    return [byte for first in firsts.tolist() for byte in range(first, first + size)]


@given(layout=layouts(), gap=st.sampled_from([0, 4, 1000]), share=st.sampled_from([0.0, 0.1, 10.0]))
def test_ranges_hold_what_a_rank_has(
    layout: tuple[list[StoredPart], dict[str, Sequence[Placement]], tuple[int, ...]], gap: int, share: float
) -> None:
    parts, placed, mesh = layout
    plan = RankPlan(parts, mesh, lambda name, _: placed[name], max_gap_nbytes=gap, max_over_read=share)
    for rank in range(plan.n_ranks):
        wanted = {
            (part.file, byte)
            for part in parts
            for byte in bytes_of(part, region_of_rank(part.shape, mesh, placed[part.tensor], rank))
        }

        ranges = plan.ranges_of(rank)
        reads = plan.reads_of(rank)

        covered = {(file, byte) for file, spans in ranges.items() for span in spans for byte in range(*astuple(span))}
        assert wanted <= covered
        assert reads.wanted_nbytes == len(wanted)
        assert reads.nbytes == sum(len(span) for spans in ranges.values() for span in spans)
        assert reads.n_requests == sum(map(len, ranges.values()))
        assert reads.nbytes <= (1 + share) * len(wanted)
        if share == 0.0:
            assert covered == wanted
        for spans in ranges.values():
            assert all(span.stop <= after.start for span, after in pairwise(spans))


def astuple(span: tensorkeep.transport.ByteRange) -> tuple[int, int]:
    return span.start, span.stop


def test_long_ranges_take_several_reads() -> None:
    part = StoredPart("w", (1000,), Region((0,), (1000,)), 8, "a", 0)
    plan = RankPlan([part], (2,), sharded_along(0), max_nbytes=200)

    assert [plan.reads_of(rank).n_requests for rank in range(2)] == [3, 3]
    with pytest.raises(SelectionError, match="there is no rank 2 of 2"):
        plan.reads_of(2)


def test_a_checkpoint_says_where_its_tensors_are(tmp_path: Path) -> None:
    state = {"w": np.arange(64, dtype=np.float32).reshape(8, 8), "b": np.arange(5, dtype=np.int16)}
    tensorkeep.save_checkpoint(state, tmp_path, max_shard_size=100, split_large=True)
    with tensorkeep.open(tmp_path) as checkpoint:
        plan = RankPlan(parts_of(checkpoint), (4,), sharded_along(0))
        all_reads = [plan.reads_of(rank) for rank in range(4)]

    assert sum(reads.wanted_nbytes for reads in all_reads) == 8 * 8 * 4 + 5 * 2
    assert [reads.n_tensors for reads in all_reads] == [2, 2, 2, 1]  # 5 elements are 2, 2, 1 and none


def test_no_tensors() -> None:
    assert RankPlan([], (3,), sharded_along(0)).reads_of(2).nbytes == 0
    assert prod(RankPlan([], (3, 2), sharded_along(0)).mesh) == 6
