"""Tensors spread in every way: saved by four ranks, loaded by any number, spread in any other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch.distributed.tensor import Replicate, Shard

import tensorkeep
from tests.support.integrations.distributed.gloo_ranks import Ranks, load, save
from tests.support.integrations.distributed.placed_tensors import (
    PLACED,
    distributed,
    full,
    is_equal,
    local_part,
    spread,
)

LARGE = (257, 1031)
"""More than one piece of a copy, and no power of two anywhere."""


def save_all(rank: int, path: str, options: dict[str, Any]) -> None:
    save(distributed(), path, **options)


def load_all(
    rank: int, path: str, mesh_shape: tuple[int, ...], placements: list[Any], options: dict[str, Any]
) -> None:
    targets, wanted = {}, {}
    for name in PLACED:
        whole = full(name)
        fitting = [
            placement if placement.is_replicate() or placement.dim < whole.ndim else Replicate()
            for placement in placements
        ]
        wanted[name] = spread(whole, mesh_shape, fitting)
        targets[name] = spread(torch.zeros_like(whole), mesh_shape, fitting)
    load(targets, path, **options)
    wrong = [name for name in PLACED if not is_equal(local_part(targets[name]), local_part(wanted[name]))]
    assert not wrong, wrong


@pytest.fixture(scope="module", params=["in_place", "per_rank"])
def saved(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    path = tmp_path_factory.mktemp("placed") / request.param
    ranks.run(save_all, str(path), {"max_shard_size": 300, "layout": request.param})
    return path


def test_every_placement_is_saved_whole(saved: Path) -> None:
    assert tensorkeep.verify(saved).findings == ()
    assert len(list(saved.glob("model-*.safetensors"))) > 3

    loaded = tensorkeep.load(saved)

    assert list(loaded) == list(PLACED)
    assert [name for name in PLACED if not is_equal(loaded[name], full(name))] == []


def test_other_readers_find_the_tensors(saved: Path, tmp_path: Path) -> None:
    found = {}
    if saved.name == "per_rank":
        tensorkeep.reshard(saved, tmp_path / "usual", max_shard_size=300)
        saved = tmp_path / "usual"
    for file in saved.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118

    assert [name for name in PLACED if not is_equal(found[name], full(name))] == []


@pytest.mark.parametrize(
    ("mesh_shape", "placements"),
    [
        ((1,), [Shard(0)]),
        ((2,), [Shard(0)]),
        ((3,), [Shard(0)]),
        ((3,), [Shard(2)]),
        ((4,), [Shard(1)]),
        ((4,), [Replicate()]),
        ((2, 2), [Shard(1), Shard(0)]),
    ],
    ids=str,
)
def test_any_number_of_ranks_loads_it_in_any_way(
    ranks: Ranks, saved: Path, mesh_shape: tuple[int, ...], placements: list[Any]
) -> None:
    world = torch.Size(mesh_shape).numel()

    for backend in ("mmap", "pread") if saved.name == "in_place" else ("mmap",):
        ranks.run(load_all, str(saved), mesh_shape, placements, {"backend": backend}, world=world)


def save_large(rank: int, path: str, layout: str) -> None:
    numbers = torch.arange(torch.Size(LARGE).numel(), dtype=torch.float32).reshape(LARGE)
    transposed = spread(numbers.t().contiguous(), (4,), [Shard(1)])
    state = {
        "rows": spread(numbers, (4,), [Shard(0)]),
        "columns": spread(numbers, (4,), [Shard(1)]),
        "squares": spread(numbers, (2, 2), [Shard(1), Shard(0)]),
        "crosswise": spread(numbers, (4,), [Shard(0)]).t(),
        "plain": numbers * 2,
    }
    assert not state["crosswise"].to_local().is_contiguous()
    assert transposed.shape == state["crosswise"].shape
    save(state, path, layout=layout)


@pytest.mark.parametrize("layout", ["in_place", "per_rank"])
def test_parts_of_many_pieces_in_any_memory_order(ranks: Ranks, tmp_path: Path, layout: str) -> None:
    ranks.run(save_large, str(tmp_path / "large"), layout)

    loaded = tensorkeep.load(tmp_path / "large")
    numbers = torch.arange(torch.Size(LARGE).numel(), dtype=torch.float32).reshape(LARGE)
    assert tensorkeep.verify(tmp_path / "large").findings == ()
    assert all(loaded[name].equal(numbers) for name in ("rows", "columns", "squares"))
    assert loaded["crosswise"].equal(numbers.t())
    assert loaded["plain"].equal(numbers * 2)


def test_one_process_without_a_group_saves_and_loads(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    from tensorkeep.integrations.distributed import TensorkeepReader, TensorkeepWriter

    state = {"w": torch.arange(6.0).reshape(2, 3), "step": 7}
    dcp.save(state, storage_writer=TensorkeepWriter(tmp_path / "one"), no_dist=True)
    target = {"w": torch.zeros(2, 3), "step": 0}
    dcp.load(target, storage_reader=TensorkeepReader(tmp_path / "one"), no_dist=True)

    assert target["w"].equal(state["w"])
    assert target["step"] == 7
    assert (tmp_path / "one" / "model.safetensors").exists()
