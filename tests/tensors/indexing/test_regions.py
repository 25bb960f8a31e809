"""Regions of a tensor against arrays in which they are marked."""

from __future__ import annotations

from math import prod
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import tensorkeep
from tensorkeep.errors import SelectionError
from tensorkeep.tensors import Region, cover_fault, run_of, shard_range

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Region]]:
    """Draw a shape and a few regions of it, which now and then are all of it."""
    shape = draw(SHAPES)
    if draw(st.booleans()):
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, shape[axis]))
        zero = (0,) * len(shape)
        first = Region(zero, (*shape[:axis], at, *shape[axis + 1 :]))
        return shape, [first, Region((*zero[:axis], at, *zero[axis + 1 :]), shape)]
    regions = []
    for _ in range(draw(st.integers(0, 5))):
        starts = tuple(draw(st.integers(0, extent - 1)) for extent in shape)
        stops = tuple(draw(st.integers(start + 1, extent)) for start, extent in zip(starts, shape, strict=True))
        regions.append(Region(starts, stops))
    return shape, regions


@given(case=cases())
def test_faults_are_those_that_counting_finds(case: tuple[tuple[int, ...], list[Region]]) -> None:
    shape, regions = case
    times = np.zeros(shape, int)
    for region in regions:
        times[region.index] += 1

    fault = cover_fault(shape, regions)

    if fault is None:
        assert (times == 1).all()
    elif fault.kind == "overlap":
        assert times[fault.region.index].max() > 1
    else:
        assert fault.kind == "missing"
        assert not times[fault.region.index].any()
        assert fault.region.n_elements


@given(case=cases())
def test_runs_are_those_of_flat_positions(case: tuple[tuple[int, ...], list[Region]]) -> None:
    shape, regions = case
    positions = np.arange(prod(shape)).reshape(shape)
    for region in filter(lambda each: each.n_elements, regions):
        flat = positions[region.index].reshape(-1).tolist()
        run = run_of(region, shape)
        assert (run is not None) == (flat == list(range(flat[0], flat[0] + len(flat))))
        assert run is None or list(run) == flat


@given(extent=st.integers(0, 40), world=st.integers(1, 12))
def test_shards_are_those_of_torch(extent: int, world: int) -> None:
    chunks = torch.arange(extent).chunk(world)

    for rank in range(world):
        expected = chunks[rank].tolist() if rank < len(chunks) else []
        assert list(shard_range(extent, rank, world)) == expected


def test_a_shard_is_read_without_the_rest(tmp_path: Path) -> None:
    whole = np.arange(70, dtype=np.int16).reshape(7, 10)
    tensorkeep.save({"w": whole}, tmp_path / "model.safetensors")
    with tensorkeep.open(tmp_path) as file:
        parts = [file.shard("w", 0, rank, 4) for rank in range(4)]
        assert [part.shape for part in parts] == [(2, 10), (2, 10), (2, 10), (1, 10)]
        assert np.array_equal(np.concatenate(parts), whole)
        assert np.array_equal(file["w"].shard(-1, 1, 3), whole[:, 4:8])
        assert file.shard("w", 0, 5, 6).shape == (0, 10)
        with pytest.raises(SelectionError, match="no dimension 2"):
            file.shard("w", 2, 0, 2)
        with pytest.raises(SelectionError, match="there is no rank 4 of 4"):
            file.shard("w", 0, 4, 4)
