"""A signature goes when a file that it names changes, and no other file does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
import tensorkeep.numpy
import tensorkeep.torch
from tensorkeep.errors import TrustError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.signing.checkpoints import save_checkpoint

KEY, OTHER = PrivateKey.generate(), PrivateKey.generate()
POLICY = Policy((Rule(keys=(KEY.public,)),))
STATE = {"w": np.zeros(10), "b": np.ones(10)}

CHANGES: dict[str, Callable[[Path], Any]] = {
    "a save in one file": lambda directory: tensorkeep.save_checkpoint(STATE, directory),
    "a save in shards": lambda directory: tensorkeep.save_checkpoint(STATE, directory, max_shard_size="80B"),
    "an edit": lambda directory: tensorkeep.edit(directory, set_metadata={"a": "b"}),
    "SHA-256 in the index": tensorkeep.add_sha256,
    "a save in the background": lambda directory: tensorkeep.save_async(STATE, directory).result(),
    "a reshard over it": lambda directory: tensorkeep.reshard(directory, directory, overwrite=True),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_signature_goes_when_what_it_names_changes(tmp_path: Path, what: str) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    sign(directory, OTHER)
    (directory / "README.md.sig").write_text("of another program")
    (directory / "notes.sig").write_text("{}")

    CHANGES[what](directory)

    assert sorted(path.name for path in directory.glob("*.sig")) == ["README.md.sig", "notes.sig"]
    assert (directory / "config.json").exists()
    assert tensorkeep.verify(directory).is_whole


def test_another_variant_leaves_it(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)

    tensorkeep.save_checkpoint(STATE, directory, variant="fp16")

    assert (directory / "model.sig").exists()
    assert tensorkeep.load(directory, trust=POLICY)


@pytest.mark.parametrize("save", [tensorkeep.save, tensorkeep.numpy.save_file])
def test_a_file_that_is_saved_again_has_no_signature(tmp_path: Path, save: Any) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        tensorkeep.save({"w": np.ones(3)}, tmp_path / name)
        sign(tmp_path / name, KEY)
        sign(tmp_path / name, OTHER)

    save({"w": np.zeros(3)}, tmp_path / "a.safetensors")

    left = sorted(path.name for path in tmp_path.glob("*.sig"))
    assert left == [f"b.safetensors.{OTHER.public.id[:8]}.sig", "b.safetensors.sig"]


def test_a_model_takes_only_what_was_signed(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    tensorkeep.torch.save_model(model, tmp_path / "m.safetensors")
    with pytest.raises(TrustError):
        tensorkeep.torch.load_into(model, tmp_path / "m.safetensors", trust=POLICY)
    tensorkeep.save(model.state_dict(), tmp_path / "m.safetensors")
    sign(tmp_path / "m.safetensors", KEY)
    assert tensorkeep.torch.load_into(model, tmp_path / "m.safetensors", trust=POLICY).n_tensors == 2
    with tensorkeep.open(tmp_path / "m.safetensors") as opened, pytest.raises(UnsupportedError, match="not open yet"):
        tensorkeep.torch.load_into(model, opened, trust=POLICY)


def test_the_functions_of_safetensors_obey_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    KEY.write(tmp_path / "key.pem")
    directory = tmp_path / "models"
    directory.mkdir()
    path = directory / "w.safetensors"
    tensorkeep.save({"w": np.arange(20.0).reshape(4, 5)}, path)
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))

    def read() -> None:
        assert tensorkeep.numpy.load_file(path)["w"][1, 1] == 6
        assert tensorkeep.torch.load_file(path)["w"][1, 1] == 6
        with tensorkeep.safe_open(path, "np") as file:
            assert file.get_tensor("w")[1, 1] == 6
            assert file.get_slice("w")[1:2, 1] == [6]

    with pytest.raises(TrustError):
        tensorkeep.numpy.load_file(path)
    sign(path, KEY)
    read()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for attempt in (tensorkeep.numpy.load_file, tensorkeep.torch.load_file):
        with pytest.raises(tensorkeep.errors.IntegrityError):
            attempt(path)
    with tensorkeep.safe_open(path, "np") as file:
        with pytest.raises(tensorkeep.errors.IntegrityError):
            file.get_tensor("w")
        with pytest.raises(tensorkeep.errors.IntegrityError):
            file.get_slice("w")[0]
