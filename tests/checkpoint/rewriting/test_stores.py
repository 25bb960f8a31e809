"""Checkpoints rewritten and converted into stores: verified there before they take the place of what was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError, UnsupportedError
from tests.support.remote.s3_bucket import Bucket

SHARD = "3KB"


def state(start: float) -> dict[str, Any]:
    return {"model": {f"layer.{n}": torch.full((500,), start + n) for n in range(4)}, "step": int(start)}


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def pickle(tmp_path: Path) -> Path:
    torch.save(state(1), tmp_path / "run.pt")
    return tmp_path / "run.pt"


@pytest.mark.parametrize("options", [{}, {"max_shard_size": SHARD}, {"sha256": True}])
def test_a_pickle_is_converted_into_a_bucket(bucket: Bucket, pickle: Path, tmp_path: Path, options: Any) -> None:
    place = bucket.at(f"{tmp_path.name}/")

    done = tensorkeep.convert(pickle, place, **options)

    assert {*done.files, *filter(None, [done.index])} == bucket.names(tmp_path.name)
    assert (done.n_tensors, done.is_checked) == (4, True)
    assert tensorkeep.load(place)["step"] == 1
    assert tensorkeep.verify(place).n_unprotected == 0
    assert tensorkeep.convert(place, tmp_path / "back").n_tensors == 4


def test_a_pickle_is_converted_into_one_file_of_a_bucket(bucket: Bucket, pickle: Path, tmp_path: Path) -> None:
    done = tensorkeep.convert(pickle, bucket.at(f"{tmp_path.name}/run.safetensors"))

    assert done.files == ("run.safetensors",)
    assert bucket.names(tmp_path.name) == {"run.safetensors"}
    assert tensorkeep.load(bucket.at(f"{tmp_path.name}/run.safetensors"))["step"] == 1


def test_the_source_may_be_in_the_bucket_and_the_destination_too(bucket: Bucket, tmp_path: Path) -> None:
    place, merged = bucket.at(f"{tmp_path.name}/a/"), bucket.at(f"{tmp_path.name}/b/")
    tensorkeep.save_checkpoint(state(1), place)

    tensorkeep.reshard(place, place, max_shard_size=SHARD)
    assert len(tensorkeep.open(place).index.files) == 4
    tensorkeep.reshard(place, place)
    assert tensorkeep.load(place)["step"] == 1
    tensorkeep.save({"other": np.ones(3)}, tmp_path / "other.safetensors")
    tensorkeep.join([place, tmp_path / "other.safetensors"], merged, max_shard_size=SHARD)
    assert len(tensorkeep.open(merged)) == 5


def test_damage_on_the_way_is_found_before_the_commit(pickle: Path, tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    place = f"memory://{tmp_path.name}/there"
    tensorkeep.save_checkpoint(state(2), place, max_shard_size=SHARD)
    before = set(files.find(place))

    def damage(_: int, __: int) -> None:
        for path in set(files.find(place)) - before:
            content = files.store[path].getbuffer()
            if len(content) > 2_000:  # all tensors of a shard
                content[-1] = 0xAB

    with pytest.raises(IntegrityError):
        tensorkeep.convert(pickle, place, max_shard_size=SHARD, overwrite=True, progress=damage)

    assert set(files.find(place)) == before
    assert tensorkeep.load(place)["step"] == 2


def test_what_names_no_directory(tmp_path: Path, pickle: Path) -> None:
    with pytest.raises(UnsupportedError, match="file extension"):
        tensorkeep.convert(pickle, "memory://run.v1")
    with pytest.raises(UnsupportedError, match="web servers"):
        tensorkeep.convert(pickle, "https://example.org/model/")
