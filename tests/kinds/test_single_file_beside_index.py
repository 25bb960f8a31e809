"""A single file beside an index that does not list it: equal tensors load, different ones are an error everywhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import IntegrityError
from tensorkeep.server import Server
from tests.support.store.run_states import names

INDEX = "model.safetensors.index.json"
WORDS = f"model.safetensors is next to {INDEX}, which does not list it"


def weights(last: float = 0) -> dict[str, np.ndarray]:
    return {f"w{n}": np.full((10, 20), n + last * (n == 3), np.float32) for n in range(4)}


def put(state: dict[str, Any], folder: Path) -> None:
    """Put a single file where a save would not write one."""
    tensorkeep.save(state, folder.parent / "other.safetensors")
    (folder.parent / "other.safetensors").rename(folder / "model.safetensors")


def write(folder: Path, last: float = 0, *, digests: bool = True) -> None:
    """Write shards, and a single file whose last tensor may be another."""
    folder.mkdir()
    tensorkeep.save_checkpoint(weights(), folder, max_shard_size=2000)
    if digests:
        put(weights(last), folder)
    else:
        safetensors.numpy.save_file(weights(last), folder / "model.safetensors")


@pytest.fixture(params=["disk", "http", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The directory `ckpt`, as it is reached in one of several ways."""
    folder = tmp_path / "ckpt"
    if request.param == "disk":
        yield str(folder)
    elif request.param == "http":
        with Server(tmp_path) as server:
            yield f"{server.url}ckpt"
    else:
        yield f"memory://{tmp_path.name}/ckpt"


def publish(folder: Path, place: str) -> None:
    if place.startswith("memory:"):
        fsspec.filesystem("memory").put(f"{folder}/", f"{place}/", recursive=True)


@pytest.mark.parametrize("digests", [True, False])
def test_equal_tensors_load(place: str, tmp_path: Path, *, digests: bool) -> None:
    write(tmp_path / "ckpt", digests=digests)
    publish(tmp_path / "ckpt", place)

    loaded = tensorkeep.load(place)
    assert loaded.keys() == weights().keys()
    assert all(np.array_equal(loaded[name], tensor) for name, tensor in weights().items())
    with tensorkeep.open(place) as opened:
        assert len(opened.shards) == (1 if digests else 2), "the index, if only it describes the state"
    assert not tensorkeep.verify(place).is_damaged
    if "://" in place:
        tensorkeep.fetch(place, tmp_path / "fetched")
        assert len(names(tmp_path / "fetched")) == (1 if digests else 3)
        assert not tensorkeep.verify(tmp_path / "fetched").is_damaged


@pytest.mark.parametrize("digests", [True, False])
def test_different_ones_are_an_error(place: str, tmp_path: Path, *, digests: bool) -> None:
    write(tmp_path / "ckpt", 0.5, digests=digests)
    publish(tmp_path / "ckpt", place)

    for use in (tensorkeep.open, tensorkeep.load):
        with pytest.raises(IntegrityError, match=f"{WORDS}.*found other bytes of tensor `w3`"):
            use(place)
    assert [WORDS in str(finding) for finding in tensorkeep.verify(place).findings] == [True]
    if "://" in place:
        with pytest.raises(IntegrityError, match=WORDS):
            tensorkeep.fetch(place, tmp_path / "fetched")


def test_each_can_be_opened_by_its_own_path(tmp_path: Path) -> None:
    write(tmp_path / "ckpt", 0.5)

    assert tensorkeep.load(tmp_path / "ckpt" / "model.safetensors")["w3"][0, 0] == 3.5
    assert tensorkeep.load(tmp_path / "ckpt" / INDEX)["w3"][0, 0] == 3.0


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({**weights(), "w4": np.ones(1)}, "tensor `w4` in one of them only"),
        ({**weights(), "w3": np.ones(1)}, r"tensor `w3` as F64 \[1\] and F32 \[10, 20\]"),
        ({"nested": weights()}, "in one of them only"),
    ],
)
def test_the_difference_is_named(tmp_path: Path, other: dict[str, Any], found: str) -> None:
    write(tmp_path / "ckpt")
    put(other, tmp_path / "ckpt")

    with pytest.raises(IntegrityError, match=found):
        tensorkeep.open(tmp_path / "ckpt")


def test_neither_is_edited(tmp_path: Path) -> None:
    write(tmp_path / "ckpt")

    with pytest.raises(IntegrityError, match="only one can be edited"):
        tensorkeep.edit(tmp_path / "ckpt", set_metadata={"a": "b"})


def test_a_save_replaces_both(tmp_path: Path) -> None:
    write(tmp_path / "ckpt", 0.5)
    tensorkeep.save_checkpoint(weights(), tmp_path / "ckpt")

    assert names(tmp_path / "ckpt") == ["model.safetensors"]


@pytest.mark.parametrize("is_served", [False, True])
def test_a_pickle_beside_its_index_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_served: bool
) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    torch.save({"w": torch.ones(3)}, folder / "pytorch_model.bin")
    shutil.copy(folder / "pytorch_model.bin", folder / "pytorch_model-00001-of-00001.bin")
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"w": "pytorch_model-00001-of-00001.bin"}}')

    with Server(tmp_path) as server:
        place = f"{server.url}ckpt" if is_served else str(folder)
        with pytest.raises(IntegrityError, match=r"pytorch_model.bin is next to pytorch_model.bin.index.json"):
            tensorkeep.open(place)
        assert main(["verify", place]) == 1
    assert "pytorch_model.bin is next to pytorch_model.bin.index.json" in capsys.readouterr().out
