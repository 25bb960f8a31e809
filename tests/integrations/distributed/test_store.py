"""All ranks save into a bucket of S3: complete or not at all, and read back by any number of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor

import tensorkeep
from tensorkeep.errors import SourceChangedError, UnsupportedError
from tensorkeep.integrations.distributed import TensorkeepWriter
from tests.support.integrations.distributed.failing_saves import (
    contents,
    save_number,
    state,
    try_to_save,
    whole_number,
)
from tests.support.integrations.distributed.gloo_ranks import Killed, Ranks, load
from tests.support.remote.s3_bucket import Bucket

SHARDS = {"max_shard_size": "60KB"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def old(ranks: Ranks, bucket: Bucket, tmp_path: Path) -> Any:
    place = bucket.at(f"{tmp_path.name}/")
    ranks.run(save_number, place, 1, SHARDS)
    return place


def objects(bucket: Bucket, place: Any) -> dict[str, str]:
    """Return name to ETag of all objects of a checkpoint."""
    prefix = place.removeprefix("s3://models/")
    found = bucket.client.list_objects_v2(Bucket="models", Prefix=prefix).get("Contents", [])
    return {each["Key"].removeprefix(prefix): each["ETag"] for each in found}


def load_number(rank: int, place: Any, number: int) -> None:
    loaded = state(0)
    load(loaded, place)
    for name, value in loaded.items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        assert torch.as_tensor(whole).eq(number).all(), name


def test_what_four_ranks_sent_is_one_checkpoint(ranks: Ranks, bucket: Bucket, old: Any, tmp_path: Path) -> None:
    assert whole_number(old) == 1
    ranks.run(load_number, old, 1)
    names = objects(bucket, old).keys()
    assert "model.safetensors.index.json" in names
    assert len(names) > 5
    assert len({name.split("-")[1] for name in names if name.startswith("model-")}) == 1

    tensorkeep.reshard(old, tmp_path / "usual", max_shard_size="5GB")
    assert whole_number(tmp_path / "usual") == 1
    tensorkeep.fetch(old, tmp_path / "here")
    assert whole_number(tmp_path / "here") == 1


def test_the_next_save_takes_its_place(ranks: Ranks, bucket: Bucket, old: Any) -> None:
    before = objects(bucket, old).keys()

    ranks.run(save_number, old, 2, SHARDS | {"sha256": True, "metadata": {"by": "us"}})

    assert whole_number(old) == 2
    assert objects(bucket, old).keys() & before == {"model.safetensors.index.json"}
    assert len(objects(bucket, old)) == len(before)


def test_files_that_did_not_change_are_not_sent_again(ranks: Ranks, bucket: Bucket, old: Any) -> None:
    before = objects(bucket, old)

    ranks.run(save_number, old, 1, SHARDS)

    after = objects(bucket, old)
    assert {name for name in after if name not in before} == set()
    assert whole_number(old) == 1


@pytest.mark.parametrize(("failing", "step"), [(0, "plan"), (0, "write"), (3, "write")])
def test_what_one_rank_raises_all_raise_and_take_back(
    ranks: Ranks, bucket: Bucket, old: Any, failing: int, step: str
) -> None:
    before = objects(bucket, old)

    for seconds, said in ranks.run(try_to_save, old, failing, step, {}):
        assert seconds < 20
        assert all(f"RuntimeError: failed in {step}" in text for text in said.values()), said
    assert objects(bucket, old) == before
    assert bucket.unfinished() == []

    ranks.run(save_number, old, 3, SHARDS)
    assert whole_number(old) == 3


@pytest.mark.parametrize("failing", [0, 2])
def test_a_killed_rank_leaves_the_old_checkpoint(ranks: Ranks, bucket: Bucket, old: Any, failing: int) -> None:
    before = objects(bucket, old)

    ranks.start(try_to_save, old, failing, "kill", {}, timeout_s=2)
    results = ranks.results()

    assert isinstance(results[failing], Killed)
    assert all(results[rank][1] for rank in range(4) if rank != failing), "nothing was raised"
    assert objects(bucket, old).items() >= before.items()
    assert whole_number(old) == 1

    ranks.run(save_number, old, 3, SHARDS)
    assert whole_number(old) == 3


def save_while_another(rank: int, place: Any) -> str:
    """Save, while another job finishes a save into the same place."""

    class Late(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if rank == 0 and not others:
                others.append(1)
                tensorkeep.save_checkpoint({"w": torch.ones(3), "number": 9}, place, max_shard_size=8)
            return super().resolve_data(write_item)

    others: list[int] = []
    try:
        dcp.save(state(2), storage_writer=TensorkeepWriter(place, **SHARDS), planner=Late())
    except dcp.CheckpointException as error:
        return " ".join(f"{type(cause).__name__}: {cause}" for cause, _ in error.failures.values())
    return ""


def test_of_two_saves_into_one_place_the_first_to_end_counts(ranks: Ranks, bucket: Bucket, old: Any) -> None:
    said = ranks.run(save_while_another, old)

    assert all(SourceChangedError.__name__ in text for text in said), said
    assert tensorkeep.load(old)["number"] == 9
    assert tensorkeep.verify(old).findings == ()
    marks = {name.split("-")[1] for name in objects(bucket, old) if name.startswith("model-")}
    assert len(marks) == 1, "what was sent in vain is left"


class FailsLate(TensorkeepWriter):
    """Fails on one rank when all have written, so that torch does not let the first rank finish."""

    fails = False

    def write_data(self, plan: Any, planner: Any) -> Any:
        future = super().write_data(plan, planner)
        if self.fails and plan.storage_data.rank == 2:
            raise KeyboardInterrupt
        return future


def save_thrice(rank: int, place: Any) -> list[bool]:
    """Save with one writer: well, then in vain, then well again; return which raised."""
    writer = FailsLate(place, **SHARDS)
    raised = []
    for number, fails in [(5, False), (6, True), (7, False)]:
        writer.fails = fails
        try:
            dcp.save(state(number), storage_writer=writer)
        except (dcp.CheckpointException, KeyboardInterrupt):
            raised.append(True)
        else:
            raised.append(False)
    return raised


@pytest.mark.parametrize("where", ["store", "files"])
def test_a_writer_saves_again_and_clears_away_what_was_in_vain(
    ranks: Ranks, bucket: Bucket, tmp_path: Path, where: str
) -> None:
    place = bucket.at(f"{tmp_path.name}-again/") if where == "store" else str(tmp_path / "again")

    assert ranks.run(save_thrice, place) == [[False, True, False]] * 4

    assert whole_number(place) == 7
    if where == "store":
        assert len({name.split("-")[1] for name in objects(bucket, place) if name.startswith("model-")}) == 1
    else:
        assert not [name for name in contents(Path(place)) if "tensorkeep-" in name]


def save_long_values(rank: int, place: Any) -> None:
    dcp.save({"long": bytes(20_000_000), **state(3)}, storage_writer=TensorkeepWriter(place))


@pytest.mark.parametrize("where", ["store", "files"])
def test_values_of_many_megabytes(ranks: Ranks, bucket: Bucket, tmp_path: Path, where: str) -> None:
    place = bucket.at(f"{tmp_path.name}-long/") if where == "store" else str(tmp_path / "long")

    ranks.run(save_long_values, place)

    loaded = tensorkeep.load(place)
    assert loaded["long"] == bytes(20_000_000)
    assert loaded["number"] == 3


def test_in_place_is_refused_in_a_store(bucket: Bucket) -> None:
    with pytest.raises(UnsupportedError, match='layout="per_rank"'):
        TensorkeepWriter(bucket.at("x/"), layout="in_place")


def test_the_url_that_dcp_gives_is_the_place(ranks: Ranks, bucket: Bucket, old: Any, tmp_path: Path) -> None:
    writer = TensorkeepWriter(tmp_path / "unused")
    writer.reset(old)
    assert writer.checkpoint_id == old
    assert contents(tmp_path) == {}
