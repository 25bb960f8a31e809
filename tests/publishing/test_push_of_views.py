"""`push` of what is open: its tensors, computed while they are written to new shards."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import tensorkeep
from tensorkeep.encryption import new_key
from tensorkeep.errors import IntegrityError, SourceMissingError, UnsupportedError
from tensorkeep.merging import average
from tensorkeep.signing import PrivateKey, sign

WEIGHTS = {f"w{n}": np.full((100, 200), n, np.float32) for n in range(4)}


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex}/m"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    tensorkeep.save_checkpoint(WEIGHTS, folder, max_shard_size="200KB")
    folder.joinpath("config.json").write_text('{"of": "a model"}')
    return folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_merged_model_is_published(model: Path, url: str, tmp_path: Path, scratch: Path) -> None:
    tensorkeep.save({name: value + 2 for name, value in WEIGHTS.items()}, tmp_path / "b.safetensors")
    with tensorkeep.open(model) as a, tensorkeep.open(tmp_path / "b.safetensors") as b:
        done = tensorkeep.push(average(a, b), url, max_shard_size="200KB")
        again = tensorkeep.push(average(a, b), url, max_shard_size="200KB")

    assert len(done.sent) == 3
    assert not again.sent
    assert tensorkeep.verify(url).is_whole
    assert {name: tensor.max() for name, tensor in tensorkeep.load(url).items()} == {f"w{n}": n + 1 for n in range(4)}
    assert not list(scratch.iterdir())


def test_an_open_checkpoint_stays_open_and_sends_its_tensors(model: Path, url: str) -> None:
    with tensorkeep.open(model) as opened:
        assert all(name.startswith("model") for name in tensorkeep.push(opened, url).sent)
        assert np.array_equal(opened["w3"].load(), WEIGHTS["w3"])
    assert np.array_equal(tensorkeep.load(url)["w3"], WEIGHTS["w3"])


@pytest.mark.parametrize("dtype", [None, "bf16"], ids=["as it is", "cast"])
def test_damage_is_not_published(model: Path, url: str, dtype: str | None, scratch: Path) -> None:
    shard = model / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    with tensorkeep.open(model, verify=dtype is not None) as opened, pytest.raises(IntegrityError):
        tensorkeep.push(opened if dtype is None else opened.cast(dtype), url)
    with pytest.raises(SourceMissingError):
        tensorkeep.open(url)
    assert not list(scratch.iterdir())


def test_a_policy_of_the_environment_is_for_what_is_opened(
    model: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = PrivateKey.generate()
    key.write(tmp_path / "key.pem")
    sign(model, key)
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))
    with tensorkeep.open(model) as opened:
        assert tensorkeep.push(opened.cast("bf16"), url).sent


def test_secrets_are_not_published(tmp_path: Path, url: str) -> None:
    key = new_key(tmp_path / "secret.key")
    tensorkeep.save(WEIGHTS, tmp_path / "secret.safetensors", encrypt=key)
    with (
        tensorkeep.open(tmp_path / "secret.safetensors", key=key) as opened,
        pytest.raises(UnsupportedError, match="would not be encrypted"),
    ):
        tensorkeep.push(opened.cast("bf16"), url)


@pytest.mark.parametrize("arguments", [{"variant": "fp16"}, {"include": "*.py"}], ids=str)
def test_what_is_open_has_no_other_files(model: Path, url: str, arguments: dict[str, Any]) -> None:
    with tensorkeep.open(model) as opened, pytest.raises(UnsupportedError):
        tensorkeep.push(opened, url, **arguments)
