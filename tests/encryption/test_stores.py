"""`CheckpointStore` with a key: steps are encrypted, and listed and removed without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import EncryptedError, IntegrityError, SourceMissingError, UnsupportedError

KEY = tensorkeep.Key(bytes(range(32)))
WEIGHTS = np.arange(50_000, dtype=np.float32)


def states(number: int) -> dict[str, object]:
    return {"w": WEIGHTS + number, "same": WEIGHTS, "step": number}


@pytest.fixture(params=["directory", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "run") if request.param == "directory" else f"memory://encrypted-{tmp_path.name}/run"


@pytest.mark.filterwarnings("ignore::tensorkeep.store.UnguardedStoreWarning")
def test_steps_are_encrypted_and_listed_without_the_key(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tensorkeep.CheckpointStore(
        root, keep_last=2, keep_best=1, monitor="loss", max_shard_size="250kB", encrypt=KEY
    )
    for number in range(1, 4):
        store.save(number, states(number), {"loss": 4.0 - number})
    store.save_async(4, states(4), {"loss": 9.0}).result()

    monkeypatch.setenv("TENSORKEEP_KEY", bytes(32).hex())  # another one
    keyless = tensorkeep.CheckpointStore(root)
    assert (keyless.steps(), keyless.latest(), keyless.best()) == ([3, 4], 4, 3)
    assert [listed.found.metrics["loss"] for listed in keyless.listing()] == [1.0, 9.0]
    assert tensorkeep.verify(keyless.path_of(4)).is_whole
    with pytest.raises(EncryptedError):
        keyless.load(4)
    with pytest.raises(EncryptedError):
        keyless.open(4)

    assert store.load("best")["step"] == 3
    np.testing.assert_array_equal(store.load(4, verify=False)["w"], WEIGHTS + 4)
    np.testing.assert_array_equal(store.open(4)["w"][7:9], WEIGHTS[7:9] + 4)
    assert store.metrics_of(3) == {"loss": 1.0}
    monkeypatch.setenv("TENSORKEEP_KEY", bytes(range(32)).hex())
    assert tensorkeep.CheckpointStore(root).load()["step"] == 4
    keyless.remove(4)
    assert store.latest() == 3


def test_steps_share_nothing_with_plain_ones_and_each_other(tmp_path: Path) -> None:
    tensorkeep.CheckpointStore(tmp_path).save(1, states(1))
    store = tensorkeep.CheckpointStore(tmp_path, encrypt=KEY)
    for number in (2, 3):
        store.save(number, states(1))

    for path in (*tmp_path.glob("step-*2/*"), *tmp_path.glob("step-*3/*")):
        assert path.stat().st_nlink == 1
        assert WEIGHTS[5:50].tobytes() not in path.read_bytes()
    tensorkeep.CheckpointStore(tmp_path).save(4, states(1))
    assert tensorkeep.load(store.path_of(4))["step"] == 1


def test_plain_and_moved_steps_are_not_loaded_with_a_key(tmp_path: Path) -> None:
    store = tensorkeep.CheckpointStore(tmp_path, encrypt=KEY)
    store.save(1, states(1))
    store.save(2, states(2))
    plain = tensorkeep.CheckpointStore(tmp_path)
    plain.save(3, states(666))

    with pytest.raises(IntegrityError, match="not encrypted"):
        store.load(3)
    with pytest.warns(tensorkeep.store.DamagedStepWarning, match="not encrypted"):
        assert store.load()["step"] == 2
    shutil.rmtree(store.path_of(2))
    shutil.copytree(store.path_of(1), store.path_of(2))
    with pytest.raises((UnsupportedError, SourceMissingError)):
        store.load(2)


def test_a_patched_step_is_not_loaded_with_a_key(tmp_path: Path) -> None:
    plain = tensorkeep.CheckpointStore(tmp_path, deltas=True)
    for number in (1, 2):
        plain.save(number, {"w": np.where(np.arange(500_000) < 9 * number, 1, 0).astype(np.float32)})
    assert plain.open(2).patch_files

    with pytest.raises(IntegrityError, match="not encrypted"):
        tensorkeep.CheckpointStore(tmp_path, encrypt=KEY).load(2)
    with pytest.raises(UnsupportedError, match="saved whole"):
        tensorkeep.CheckpointStore(tmp_path, encrypt=KEY, deltas=True)


def test_processes_that_save_together_are_told_to_encrypt(tmp_path: Path) -> None:
    store = tensorkeep.CheckpointStore(tmp_path, encrypt=KEY)
    record = tensorkeep.store.StepRecord(1, {}, "2026-11-24T00:00:00.000000+00:00")
    told: list[tensorkeep.Encryption] = []

    store._writer.write(
        tensorkeep.tensors.prepare(states(1)), record, {}, lambda _, __, options: told.append(options.encryption)
    )
    assert [encryption.key for encryption in told] == [KEY]
