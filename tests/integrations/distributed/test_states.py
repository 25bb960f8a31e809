"""What is in a state besides plain parts of tensors: nested trees, values of any kind, ties; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException, DefaultSavePlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

import tensorkeep
from tensorkeep.integrations.distributed import TensorkeepWriter
from tests.support.integrations.distributed.gloo_ranks import Ranks, load, save
from tests.support.integrations.distributed.placed_tensors import spread
from tests.support.remote.s3_bucket import Bucket


@dataclass
class Schedule:
    warmup: int
    names: tuple[str, ...]


def weights() -> torch.Tensor:
    return torch.arange(40, dtype=torch.float32).reshape(8, 5)


def nested(factor: int = 1) -> dict[str, Any]:
    """A tree with every kind of leaf, as each rank has it."""
    part = spread(weights() * factor, (4,), [Shard(0)])
    return {
        "model": {"w": part, "plain": weights() * 2 * factor, "bf16": torch.ones(3, dtype=torch.bfloat16) * factor},
        "optimizer": {
            "state": {
                0: {"step": torch.tensor(3.0) * factor, "exp_avg": spread(weights() + factor, (4,), [Shard(1)])}
            },
            "param_groups": [{"lr": 0.5 * factor, "betas": (0.9, 0.999), "params": [0], "foreach": None}],
        },
        "odd": {
            "transposed": weights().t() * factor,
            "empty": torch.empty(0, 3, dtype=torch.int64),
            "bool": torch.tensor([True, False]),
            "list": [torch.ones(2) * factor, factor],
            "tuple": (torch.full((2,), factor), "text"),
            "sparse": (torch.eye(3) * factor).to_sparse(),
            "double": torch.ones(2, dtype=torch.complex128) * factor,
        },
        "numpy": np.arange(5) * factor,
        "long": b"\x00\x01" * 4000 * factor,
        "when": date(2026, 11, 21),
        "schedule": Schedule(10 * factor, ("a", "b")),
        "step": 1000 * factor,
        "none": None,
    }


def save_nested(rank: int, path: str, layout: str | None) -> None:
    save(nested(), path, max_shard_size=200, layout=layout)


def load_nested(rank: int, path: str) -> None:
    state = nested(0)
    load(state, path)
    assert state["model"]["w"].full_tensor().equal(weights())
    assert state["model"]["plain"].equal(weights() * 2)
    assert state["optimizer"]["state"][0]["exp_avg"].full_tensor().equal(weights() + 1)
    assert state["optimizer"]["state"][0]["step"] == 3
    assert state["optimizer"]["param_groups"] == [{"lr": 0.5, "betas": (0.9, 0.999), "params": [0], "foreach": None}]
    assert state["odd"]["transposed"].equal(weights().t())
    assert state["odd"]["list"][0].equal(torch.ones(2))
    assert state["odd"]["list"][1] == 1
    assert state["odd"]["tuple"][0].equal(torch.ones(2, dtype=torch.int64))
    assert state["odd"]["sparse"].to_dense().equal(torch.eye(3))
    assert (state["numpy"] == np.arange(5)).all()
    assert state["long"] == b"\x00\x01" * 4000
    assert (state["step"], state["when"]) == (1000, date(2026, 11, 21))


@pytest.fixture(scope="module", params=["in_place", "per_rank", "s3"])
def saved(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "s3":
        with Bucket.served() as bucket:
            ranks.run(save_nested, bucket.at("nested/"), None)
            yield bucket.at("nested/")
    else:
        path = str(tmp_path_factory.mktemp("nested") / request.param)
        ranks.run(save_nested, path, request.param)
        yield path


def test_a_nested_tree_comes_back_on_a_laptop(saved: str) -> None:
    assert tensorkeep.verify(saved).findings == ()

    state = tensorkeep.load(saved, classes=[Schedule])

    assert list(state) == ["model", "optimizer", "odd", "numpy", "long", "when", "schedule", "step", "none"]
    assert state["model"]["w"].equal(weights())
    assert state["model"]["bf16"].dtype == torch.bfloat16
    assert state["optimizer"]["state"]["0"]["exp_avg"].equal(weights() + 1)
    assert state["optimizer"]["param_groups"] == [{"lr": 0.5, "betas": (0.9, 0.999), "params": [0], "foreach": None}]
    assert state["odd"]["transposed"].equal(weights().t())
    assert state["odd"]["empty"].shape == (0, 3)
    assert state["odd"]["tuple"][1] == "text"
    assert state["odd"]["double"].dtype == torch.complex128
    assert state["numpy"].tolist() == list(range(5))
    assert state["schedule"] == Schedule(10, ("a", "b"))
    assert (state["step"], state["none"], state["when"]) == (1000, None, date(2026, 11, 21))


@pytest.mark.parametrize("world", [4, 2, 1])
def test_dcp_loads_the_tree_in_place(ranks: Ranks, saved: str, world: int) -> None:
    ranks.run(load_in_world, saved, world, world=world)


def load_in_world(rank: int, path: str, world: int) -> None:
    if world == 4:
        return load_nested(rank, path)
    state = {"model": {"w": spread(torch.zeros(8, 5), (world,), [Shard(1)])}, "step": 0}
    load(state, path)
    assert state["model"]["w"].full_tensor().equal(weights())
    assert state["step"] == 1000
    return None


def save_tied(rank: int, path: str) -> None:
    shared = spread(weights(), (4,), [Shard(0)])
    alike = spread(weights(), (4,), [Shard(0)])
    plain = torch.arange(6.0)
    save({"embed": shared, "head": shared, "alike": alike, "one": plain, "two": plain, "view": plain[:3]}, path)


def test_tied_tensors_are_stored_once_and_tied_again(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(save_tied, str(tmp_path / "tied"))

    loaded = tensorkeep.load(tmp_path / "tied")

    assert loaded["head"].data_ptr() == loaded["embed"].data_ptr() != loaded["alike"].data_ptr()
    assert loaded["one"].data_ptr() == loaded["two"].data_ptr()
    assert loaded["head"].equal(weights())
    with tensorkeep.open(tmp_path / "tied") as opened:
        assert opened.nbytes == 2 * weights().nbytes + 6 * 4 + 3 * 4
    assert tensorkeep.verify(tmp_path / "tied").findings == ()


def save_unequally_tied(rank: int, path: str) -> None:
    """On the last rank the two are different tensors."""
    one = spread(weights(), (4,), [Shard(0)])
    other = one.clone() if rank == 3 else one
    save({"one": one, "other": other}, path)


def test_what_is_tied_on_some_ranks_only_is_stored_twice(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(save_unequally_tied, str(tmp_path / "half"))

    loaded = tensorkeep.load(tmp_path / "half")
    assert loaded["one"].equal(weights())
    assert loaded["other"].equal(weights())
    assert loaded["one"].data_ptr() != loaded["other"].data_ptr()


def save_refused(rank: int, what: str, path: str) -> dict[int, str]:
    mesh = init_device_mesh("cpu", (4,))
    values: dict[str, Any] = {
        "function": {"deep": {"here": lambda: None}},
        "partial": DTensor.from_local(torch.ones(3), mesh, [Partial()]),
        "within": (DTensor.from_local(torch.ones(3), mesh, [Shard(0)]),),
        "meta": torch.empty(3, device="meta"),
    }
    try:
        save({"good": torch.ones(4), "bad": values[what]}, path)
    except CheckpointException as error:
        return {failed: f"{type(cause).__name__}: {cause}" for failed, (cause, _) in error.failures.items()}
    raise AssertionError("not refused")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("function", "'bad.deep.here' is not data that can be saved: found builtins.function"),
        ("partial", "DTensor with partial placements"),
        ("within", "'bad.0' is a DTensor inside a value that one rank saves alone"),
        ("meta", "`bad`"),
    ],
)
def test_what_cannot_be_saved_is_refused_on_every_rank(ranks: Ranks, tmp_path: Path, what: str, told: str) -> None:
    old = tmp_path / "checkpoint"
    tensorkeep.save_checkpoint({"good": torch.zeros(2)}, old)

    for failures in ranks.run(save_refused, what, str(old)):
        assert set(failures) == {0, 1, 2, 3}
        assert all(told in text for text in failures.values()), failures

    assert tensorkeep.load(old)["good"].equal(torch.zeros(2))
    assert [path.name for path in old.iterdir()] == ["model.safetensors"]


def load_wrong(rank: int, what: str, path: str) -> str:
    targets: dict[str, Any] = {
        "missing": {"model": {"nobody": torch.zeros(2)}},
        "size": {"model": {"plain": torch.zeros(3, 5)}},
        "kind": {"odd": {"double": torch.zeros(2)}, "model": {"plain": torch.zeros(8, 5, dtype=torch.int32)}},
    }
    try:
        load(targets[what], path)
    except CheckpointException as error:
        return "\n".join(str(cause) for cause, _ in error.failures.values())
    raise AssertionError("not refused")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("missing", "Missing key in checkpoint state_dict: model.nobody"),
        ("size", "Size mismatch between saved torch.Size([8, 5]) and current: torch.Size([3, 5]) for model.plain"),
        ("kind", "tensor `model.plain` cannot be cast to the dtype of the tensor"),
    ],
)
def test_what_does_not_fit_is_told(ranks: Ranks, saved: str, what: str, told: str) -> None:
    assert all(told in text for text in ranks.run(load_wrong, what, saved))


def load_counted(rank: int, path: str, options: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes that were read, as the kernel counts them, and those of this rank's parts."""
    shape = (1024, 2048)
    targets = {
        "rows": spread(torch.zeros(shape), (4,), [Shard(0)]),
        "columns": spread(torch.zeros(shape), (4,), [Shard(1)]),
        "squares": spread(torch.zeros(shape), (2, 2), [Shard(0), Shard(1)]),
    }
    load({name: target.clone() for name, target in targets.items()}, path, **options)  # what is imported is read too
    before = _n_read()
    load(targets, path, **options)
    after = _n_read()
    assert targets["columns"].to_local()[5, 7] == 5 * 2048 + rank * 512 + 7
    return after - before, sum(target.to_local().nbytes for target in targets.values())


def _n_read() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


def test_each_rank_reads_hardly_more_than_its_own(ranks: Ranks, tmp_path: Path) -> None:
    numbers = torch.arange(1024 * 2048, dtype=torch.float32).reshape(1024, 2048)
    tensorkeep.save_checkpoint({"rows": numbers, "columns": numbers * 1, "squares": numbers * 1}, tmp_path / "whole")

    for n_read, n_own in ranks.run(load_counted, str(tmp_path / "whole"), {"backend": "pread"}):
        assert n_own <= n_read <= 1.1 * n_own


def load_others(rank: int, folder: str) -> None:
    for name in ("pickle.pt", "plain.safetensors", "sharded"):
        target = {"w": spread(torch.zeros(8, 5), (3,), [Shard(1)])}
        load(target, f"{folder}/{name}")
        assert target["w"].full_tensor().equal(weights()), name


def test_checkpoints_of_others_are_loaded(ranks: Ranks, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    torch.save({"w": weights()}, tmp_path / "pickle.pt")
    save_file({"w": weights()}, tmp_path / "plain.safetensors")
    tensorkeep.save_checkpoint({"w": weights(), "x": weights() + 1}, tmp_path / "sharded", max_shard_size=200)

    ranks.run(load_others, str(tmp_path), world=3)


class Shuffled(DefaultSavePlanner):
    def finish_plan(self, new_plan: Any) -> Any:
        plan = super().finish_plan(new_plan)
        plan.items.reverse()
        return plan


def save_contradictions(rank: int, path: str, what: str) -> str:
    state: Any = {name: spread(torch.ones(8), (4,), [Shard(0)]) for name in ("a", "b")}
    planner = Shuffled() if what == "order" else None
    if what == "tree":
        state["schedule"] = {"x": torch.ones(2)} if rank else None
    try:
        dcp.save(state, storage_writer=TensorkeepWriter(path), planner=planner)
    except CheckpointException as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("what", "told"),
    [("order", "the planner has changed the plan"), ("tree", "ranks have different values at one place")],
)
def test_ranks_that_contradict_each_other_are_told(ranks: Ranks, tmp_path: Path, what: str, told: str) -> None:
    assert all(told in text for text in ranks.run(save_contradictions, str(tmp_path / "new"), what))
    assert not (tmp_path / "new").exists()
