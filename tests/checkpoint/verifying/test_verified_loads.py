"""Loads that hold every byte against its digest on the way, from single files, shards, pickles and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError, UnsupportedError

BACKENDS = ["mmap", "pread"]


def state() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    model = {f"w{number}": rng.normal(size=(50, 1000)) for number in range(8)}  # enough to be mapped
    tiny = {f"t{number}": rng.normal(size=3) for number in range(100)}
    return {"model": model, "tiny": tiny, "tied": model["w3"], "torch": torch.arange(9), "step": 5}


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tensorkeep.save(state(), tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tensorkeep.save_checkpoint(state(), tmp_path / "shards", max_shard_size="1MB", split_large=True)
    return tmp_path / "shards"


def assert_same(loaded: dict[str, Any]) -> None:
    expected = state()
    for part in ("model", "tiny"):
        for name, array in expected[part].items():
            np.testing.assert_array_equal(loaded[part][name], array)
    assert np.shares_memory(loaded["tied"], loaded["model"]["w3"])
    assert loaded["torch"].tolist() == list(range(9))
    assert loaded["step"] == 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_whole_is_loaded(file: Path, directory: Path, backend: str) -> None:
    assert_same(tensorkeep.load(file, verify=True, backend=backend))
    assert_same(tensorkeep.load(directory, verify=True, backend=backend))
    assert_same(tensorkeep.load(file.read_bytes(), verify=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_damaged_tensor_is_named(file: Path, backend: str) -> None:
    with tensorkeep.open(file) as opened:
        spans = {name: opened.span_of(name) for name in opened.entries}
    for name, span in list(spans.items())[::25]:
        for at in (span.start, span.stop - 1):
            flip(file, at)
            with pytest.raises(IntegrityError, match=f"tensor `{name}` are not those") as caught:
                tensorkeep.load(file, verify=True, backend=backend)
            assert caught.value.tensor == name
            tensorkeep.load(file, backend=backend)
            flip(file, at)
    assert_same(tensorkeep.load(file, verify=True, backend=backend))


def test_a_damaged_shard_is_named(directory: Path) -> None:
    shard = max(directory.glob("*.safetensors"))
    flip(shard, shard.stat().st_size - 1)
    with pytest.raises(IntegrityError, match=shard.name):
        tensorkeep.load(directory, verify=True)


def test_a_part_is_checked_and_the_rest_is_not_read(file: Path) -> None:
    with tensorkeep.open(file) as opened:
        span = opened.span_of("model.w2")
    flip(file, span.start + 9)

    assert tensorkeep.load(file, only="tiny.*", verify=True)["tiny"]["t5"].shape == (3,)
    with pytest.raises(IntegrityError, match=r"model\.w2"):
        tensorkeep.load(file, only="model.*", verify=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lazy_tensors_are_checked_when_they_are_read(file: Path, backend: str) -> None:
    with tensorkeep.open(file) as opened:
        span = opened.span_of("model.w2")
    flip(file, span.start + 9)

    with tensorkeep.open(file, verify=True, backend=backend) as opened:
        np.testing.assert_array_equal(opened["model.w1"][5:7, ::3], opened["model.w1"].load()[5:7, ::3])
        for read in (lambda: opened["model.w2"][5:7], lambda: opened["model.w2"].load()):
            with pytest.raises(IntegrityError, match=r"model\.w2"):
                read()
    with tensorkeep.open(file, backend=backend) as opened:
        assert opened["model.w2"][5:7].shape == (2, 1000)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_is_checked_again_each_time_it_is_read(file: Path, backend: str) -> None:
    with tensorkeep.open(file, verify=True, backend=backend) as opened:
        assert opened["model.w2"][5:7].shape == (2, 1000)
        flip(file, opened.span_of("model.w2").start + 5 * 8000)
        assert opened["model.w2"][40:42].shape == (2, 1000)  # other blocks
        with pytest.raises(IntegrityError, match=r"model\.w2.* damage in bytes"):
            opened["model.w2"][5:7]


def test_without_digests_there_is_nothing_to_verify_by(tmp_path: Path) -> None:
    tensorkeep.save({"a": np.ones(3)}, tmp_path / "plain.safetensors", digests=False)
    with pytest.raises(UnsupportedError, match="no digests"):
        tensorkeep.load(tmp_path / "plain.safetensors", verify=True)


def test_files_of_pickles_are_held_against_their_sums(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.arange(1000.0)}, path)
    assert tensorkeep.load(path, verify=True)["w"][7] == 7

    data = path.read_bytes()
    flip(path, data.index(np.arange(1000, dtype=np.float32).tobytes()) + 9)
    assert tensorkeep.load(path)["w"][2] != 2
    with pytest.raises(IntegrityError, match="w"):
        tensorkeep.load(path, verify=True)
