"""Files too damaged to open are damage, and not errors; what is no checkpoint is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import FormatError
from tests.support.store.run_states import names

TENSORS = {"w": np.arange(500.0), "v": np.ones(10)}


def write(path: Path) -> None:
    as_torch = {name: torch.from_numpy(tensor) for name, tensor in TENSORS.items()}
    match path.name:
        case "model.safetensors":
            tensorkeep.save(TENSORS, path)
        case "model.pt":
            torch.save(as_torch, path)
        case "legacy.pt":
            torch.save(as_torch, path, _use_new_zipfile_serialization=False)
        case "arrays.npz":
            np.savez(path, **TENSORS)
        case "array.npy":
            np.save(path, TENSORS["w"])


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt", "legacy.pt", "arrays.npz", "array.npy"])
def test_a_file_that_was_cut_off_is_damaged(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path)
    content = path.read_bytes()

    for nbytes in (0, 5, 9, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:nbytes])
        found = tensorkeep.verify(path)

        assert (found.is_damaged, found.is_whole, bool(found)) == (True, False, False), nbytes
        assert [(finding.kind, finding.shard) for finding in found.findings] == [("header", name)]


@pytest.mark.parametrize("nbytes", [0, 50, -3])
def test_an_index_that_was_cut_off_is_damage(tmp_path: Path, nbytes: int) -> None:
    tensorkeep.save_checkpoint(TENSORS, tmp_path, max_shard_size=3000)
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes(index.read_bytes()[: nbytes or 0])

    for path in (tmp_path, index):
        assert [str(finding).partition(": ")[0] for finding in tensorkeep.verify(path).findings] == [index.name]


@pytest.mark.parametrize(
    "content", [b"<!DOCTYPE html><html></html>", b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_what_is_no_checkpoint_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    with pytest.raises(FormatError, match="found a"):
        tensorkeep.verify(path)


def test_a_verification_is_true_if_everything_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save(TENSORS, path)
    assert tensorkeep.verify(path)

    tensorkeep.save(TENSORS, path, digests=False)
    assert not tensorkeep.verify(path), "nothing is known of it"
    assert not tensorkeep.verify(path).is_damaged
    assert names(tmp_path) == [path.name]
