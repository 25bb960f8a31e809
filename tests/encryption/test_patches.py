"""Patches of encrypted checkpoints are encrypted, and what is patched stays so: nothing is plain on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
import tensorkeep.torch
from tensorkeep import patches
from tensorkeep.patches._spool import Spool

KEY, OTHER = tensorkeep.Key(bytes(range(32))), tensorkeep.Key(bytes(32))
ERRORS = tensorkeep.errors


def model(number: int) -> dict[str, Any]:
    """Return tensors of which a few elements differ from one number to the next, and one that has another shape."""
    weights = np.arange(40_000, dtype=np.float32)
    weights[: 100 * number] += number
    return {"weight": weights, "same": np.full(50_000, 7.0), "shape": np.full(300 + number, 3.0, np.float32)}


def saved(tmp_path: Path, number: int, key: tensorkeep.Key | None = KEY) -> Path:
    tensorkeep.save_checkpoint(model(number), tmp_path / str(number), encrypt=key, max_shard_size=200_000)
    return tmp_path / str(number)


def is_model(path: Path, number: int, key: tensorkeep.Key = KEY) -> bool:
    loaded = tensorkeep.load(path, key=key, verify=True)
    return all(np.array_equal(loaded[name], value) for name, value in model(number).items())


def test_they_are_encrypted_like_their_ends(tmp_path: Path) -> None:
    first, second, third = (saved(tmp_path, number) for number in (1, 2, 3))
    one, two, both = (tmp_path / f"{name}.safetensors" for name in ("one", "two", "both"))
    patches.make(first, second, one, key=KEY, reversible=True)
    patches.make(second, third, two, key=KEY, reversible=True)
    patches.chain([one, two], both, key=KEY)

    for patch in (one, two, both):
        assert b"encryption" in patch.read_bytes()
        assert b"delta/weight" not in patch.read_bytes()
        with pytest.raises(ERRORS.EncryptedError, match="--key-file"):
            patches.apply(first, patch)
    with pytest.raises(ERRORS.EncryptedError):
        patches.apply(first, one, key=OTHER)

    patches.apply(first, both, key=KEY)
    assert is_model(first, 3)
    patches.undo(first, one, two, key=KEY)
    assert is_model(first, 1)
    patches.apply(first, one, two, key=KEY, output=tmp_path / "new.safetensors")
    assert is_model(tmp_path / "new.safetensors", 3)


def test_a_checkpoint_never_becomes_plain(tmp_path: Path) -> None:
    plain, secret = saved(tmp_path, 1, None), saved(tmp_path, 2)
    patches.make(plain, secret, tmp_path / "p", key=KEY)
    patches.apply(plain, tmp_path / "p", key=KEY)
    assert is_model(plain, 2)

    patches.make(secret, saved(tmp_path, 3, None), tmp_path / "q", key=KEY, encrypt=OTHER)
    patches.apply(secret, tmp_path / "q", key=[KEY, OTHER], encrypt=OTHER)
    assert is_model(secret, 3, OTHER)


def test_views_of_encrypted_tensors_count(tmp_path: Path) -> None:
    with tensorkeep.open(saved(tmp_path, 1), key=KEY) as old, tensorkeep.open(saved(tmp_path, 2), key=KEY) as new:
        names = {name: name.upper() for name in old}
        patches.make(old.rename(names), new.rename(names), tmp_path / "p")
    with tensorkeep.open(tmp_path / "p") as patch, pytest.raises(ERRORS.EncryptedError):
        patch.require_names()


def test_a_live_model_is_patched(tmp_path: Path) -> None:
    layers = [torch.nn.Linear(4, 4) for _ in range(2)]
    for number, layer in enumerate(layers):
        tensorkeep.save_checkpoint(layer.state_dict(), tmp_path / str(number), encrypt=KEY)
    patches.make(tmp_path / "0", tmp_path / "1", tmp_path / "p", key=KEY)

    tensorkeep.torch.apply_patch(layers[0], tmp_path / "p", key=KEY)
    tensorkeep.torch.assert_loaded(layers[0], tmp_path / "1", key=KEY)


def test_a_feed_refuses_what_is_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORKEEP_KEY", bytes(range(32)).hex())
    with pytest.raises(ERRORS.UnsupportedError, match="a feed is plain"):
        patches.Publisher(tmp_path / "feed").publish(1, saved(tmp_path, 1))
    assert list((tmp_path / "feed").iterdir()) == []


def test_what_waits_for_a_patch_is_encrypted_too(tmp_path: Path) -> None:
    data = [bytes([number]) * nbytes for number, nbytes in enumerate((5, 16, 33, 1, 4096))]
    with Spool(str(tmp_path), is_encrypted=True) as spool:
        starts = [spool.add(each) for each in data]
        stored = os.pread(spool._file.fileno(), 2**16, 0)

        assert not any(each * 4 in stored for each in (b"\0", b"\1", b"\2", b"\4"))
        assert [spool.read(*place) for place in zip(starts, map(len, data), strict=True)] == data
        assert spool.read(3, 40) == b"".join(data)[3:43]
