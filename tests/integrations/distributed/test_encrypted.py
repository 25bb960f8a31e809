"""Ranks that encrypt one checkpoint together: each its own files, so that no block is encrypted twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard

import tensorkeep
from tensorkeep.integrations.distributed import TensorkeepWriter
from tests.support.integrations.distributed.failing_saves import contents, save_number, try_to_save, whole_number
from tests.support.integrations.distributed.gloo_ranks import FailedRank, Killed, Ranks, load, save
from tests.support.integrations.distributed.placed_tensors import spread
from tests.support.remote.s3_bucket import Bucket

SECRET, OTHER = bytes(range(32)), bytes(32)
KEY = tensorkeep.Key(SECRET)


def weights() -> torch.Tensor:
    return torch.arange(40_000, dtype=torch.float32).reshape(200, 200)


def state(factor: int = 1) -> dict[str, Any]:
    return {
        "rows": spread(weights() * factor, (4,), [Shard(0)]),
        "columns": spread(weights() * factor, (4,), [Shard(1)]),
        "plain": weights()[:3] * factor,
        "empty": torch.empty(0, 3),
        "sparse": (torch.eye(3) * factor).to_sparse(),
        "long": b"secret words" * 400 * factor,
        "step": 5 * factor,
    }


def save_encrypted(rank: int, path: str, shows_names: bool) -> None:
    save(state(), path, max_shard_size="50KB", encrypt=tensorkeep.Encryption(KEY, shows_names=shows_names))


def load_encrypted(rank: int, path: str) -> None:
    loaded = state(0)
    load(loaded, path, key=KEY)
    assert loaded["rows"].full_tensor().equal(weights())
    assert loaded["columns"].full_tensor().equal(weights())
    assert loaded["step"] == 5


def save_with_several_keys(rank: int, path: str, first: Any, others: Any) -> None:
    secret = first if rank == 0 else others
    save(state(), path, encrypt=None if secret is None else tensorkeep.Key(secret))


@pytest.fixture(scope="module", params=["hidden", "listed", "s3"])
def saved(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "s3":
        with Bucket.served() as bucket:
            ranks.run(save_encrypted, bucket.at("secret/"), False)
            yield bucket.at("secret/")
    else:
        path = str(tmp_path_factory.mktemp("encrypted") / "c")
        ranks.run(save_encrypted, path, request.param == "listed")
        yield path


def test_they_save_one_checkpoint(saved: str, ranks: Ranks) -> None:
    assert tensorkeep.verify(saved).is_whole
    assert tensorkeep.verify(saved, key=KEY).is_whole
    loaded = tensorkeep.load(saved, key=KEY, verify=True)
    assert loaded["rows"].equal(weights())
    assert loaded["columns"].equal(weights())
    assert loaded["sparse"].to_dense().equal(torch.eye(3))
    assert (loaded["long"], loaded["step"]) == (b"secret words" * 400, 5)
    ranks.run(load_encrypted, saved)


def test_no_salt_is_used_twice(tmp_path: Path, ranks: Ranks) -> None:
    salts: list[str] = []
    for _ in range(2):
        ranks.run(save_encrypted, str(tmp_path / "c"), False)
        for file in sorted((tmp_path / "c").glob("*.safetensors")):
            content = file.read_bytes()
            assert b"secret words" not in content
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            salts.append(json.loads(header["__metadata__"]["tensorkeep.encryption"])["salt"])
    assert len(salts) >= 16
    assert len(set(salts)) == len(salts)


@pytest.mark.parametrize(
    "keys", [(SECRET, OTHER), (SECRET, None), (None, SECRET)], ids=["another", "none", "too many"]
)
def test_ranks_with_different_keys_write_nothing(tmp_path: Path, ranks: Ranks, keys: Any) -> None:
    with pytest.raises(FailedRank, match="ranks that save together have different keys"):
        ranks.run(save_with_several_keys, str(tmp_path / "c"), *keys)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_rank_leaves_the_old_checkpoint(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "c", str(tmp_path / "aes.key")
    tensorkeep.encryption.new_key(key)
    monkeypatch.setenv("TENSORKEEP_KEY_FILE", key)
    options = {"encrypt": key, "max_shard_size": "60KB"}
    ranks.run(save_number, str(path), 1, options)
    before = contents(path)

    ranks.start(try_to_save, str(path), 2, "kill", {"encrypt": key}, timeout_s=2)
    assert isinstance(ranks.results()[2], Killed)
    assert whole_number(path) == 1
    assert {name: data for name, data in contents(path).items() if not name.startswith(".")} == before

    ranks.run(save_number, str(path), 3, options)
    assert whole_number(path) == 3
    assert not any(name.startswith(".") for name in contents(path))


def test_several_ranks_cannot_encrypt_one_file(tmp_path: Path) -> None:
    with pytest.raises(tensorkeep.errors.UnsupportedError, match="several ranks cannot encrypt one file"):
        TensorkeepWriter(tmp_path, layout="in_place", encrypt=KEY)
