"""Encrypted checkpoints that are written tensor by tensor: what waits is encrypted, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import RefusedError, TensorNotFoundError
from tensorkeep.limits import WRITE_NBYTES

KEY = tensorkeep.Key(bytes(range(32)))
TENSORS = {
    "b": np.arange(100_000, dtype=np.float32),
    "a": np.full((300, 7), 7.0),
    "empty": np.zeros((0, 3), np.float16),
    "odd": np.frombuffer(b"secret words" * 5000 + b"!", np.uint8),
}


def planned(shows_names: bool = False) -> Any:
    return {"plan": TENSORS, "encrypt": tensorkeep.Encryption(KEY, shows_names=shows_names)}


WAYS = {
    "planned": planned(),
    "names visible": planned(shows_names=True),
    "as they come": {"encrypt": KEY},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shard", ["1GB", "100KB"])
def test_they_are_what_was_written(tmp_path: Path, way: str, shard: str) -> None:
    with tensorkeep.writing(tmp_path / "c", max_shard_size=shard, **WAYS[way]) as writer:
        for name in reversed(TENSORS):
            writer[name] = TENSORS[name]
            assert not any(b"secret words" in content for content in contents(tmp_path)), "on the disk in plain"

    assert not any(b"secret words" in content for content in contents(tmp_path))
    assert tensorkeep.verify(tmp_path / "c", key=KEY).is_whole
    loaded = tensorkeep.load(tmp_path / "c", key=KEY, verify=True)
    assert {name: array.tobytes() for name, array in loaded.items()} == {
        name: array.tobytes() for name, array in TENSORS.items()
    }


def test_a_saved_state_as_plan_keeps_its_tree(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"model": {"w": np.ones(3)}, "step": 5}, tmp_path / "plain")
    plan = tensorkeep.open(tmp_path / "plain")
    with plan, tensorkeep.writing(tmp_path / "c", plan, encrypt=KEY) as writer:
        writer["model.w"] = np.zeros(3)

    loaded = tensorkeep.load(tmp_path / "c", key=KEY)
    assert (loaded["step"], loaded["model"]["w"].tolist()) == (5, [0, 0, 0])


def test_what_is_missing_or_unplanned_is_refused(tmp_path: Path) -> None:
    def write() -> None:
        with tensorkeep.writing(tmp_path / "c", TENSORS, encrypt=KEY) as writer:
            with pytest.raises(TensorNotFoundError):
                writer["other"] = np.ones(3)
            writer["a"] = TENSORS["a"]
            assert writer.missing == ["b", "empty", "odd"]

    with pytest.raises(RefusedError, match="were not written"):
        write()
    assert not (tmp_path / "c").exists()


def test_a_tensor_that_failed_is_written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No place is encrypted twice: what comes again gets another one."""
    places: list[int] = []
    apply = tensorkeep.encryption.ScratchCipher.apply

    def counted(self: Any, data: Any, position: int) -> bytes:
        places.extend(range(position, position + memoryview(data).nbytes))
        if len(places) == 12:
            raise OSError("once")
        return apply(self, data, position)

    with tensorkeep.writing(tmp_path / "c", encrypt=KEY) as writer:
        monkeypatch.setattr(tensorkeep.encryption.ScratchCipher, "apply", counted)
        with pytest.raises(OSError, match="once"):
            writer["w"] = np.ones(3, np.float32)
        writer["w"] = np.ones(3, np.float32)
        assert len(set(places)) == len(places) == 24
        monkeypatch.undo()
    assert tensorkeep.load(tmp_path / "c", key=KEY)["w"].tolist() == [1, 1, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_encrypts_nothing() -> None:
    cipher = tensorkeep.encryption.ScratchCipher()
    if (pid := os.fork()) == 0:
        try:
            cipher.apply(b"x", 0)
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_large_tensor_is_encrypted_in_pieces() -> None:
    sizes: list[int] = []

    class Written:
        def write(self, offset: int, data: memoryview) -> None:
            assert offset == sum(sizes)
            sizes.append(len(data))

    data = memoryview(bytes(2 * WRITE_NBYTES + 5))
    tensorkeep.encryption.ScratchWriter(Written(), tensorkeep.encryption.ScratchCipher()).write(0, data)
    assert sizes == [WRITE_NBYTES, WRITE_NBYTES, 5]


def contents(root: Path) -> Iterator[bytes]:
    yield from (path.read_bytes() for path in root.rglob("*") if path.is_file())
