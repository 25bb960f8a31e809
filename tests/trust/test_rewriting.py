"""`trust=` of functions that read a checkpoint and write or compare another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import TrustError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.torch import load_sharded
from tensorkeep.trust import Policy, Rule
from tests.support.signing.checkpoints import save_checkpoint

KEY = PrivateKey.generate()

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "reshard": lambda source, new, **options: tensorkeep.reshard(source, new, **options),
    "join": lambda source, new, **options: tensorkeep.join([source], new, **options),
    "convert": lambda source, new, **options: tensorkeep.convert(source, new, **options),
    "export": lambda source, new, **options: tensorkeep.export(source, new.with_suffix(".npz"), **options),
    "diff": lambda source, new, **options: tensorkeep.diff(source, source, **options),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_what_is_signed_is_read(tmp_path: Path, name: str) -> None:
    source = save_checkpoint(tmp_path / "ckpt")
    policy = Policy((Rule(keys=(KEY.public,)),))

    with pytest.raises(TrustError, match="no trusted signature"):
        FUNCTIONS[name](source, tmp_path / "new", trust=policy)
    assert not list(tmp_path.glob("new*"))
    sign(source, KEY)
    FUNCTIONS[name](source, tmp_path / "new", trust=policy)


def test_the_policy_of_the_environment_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save_checkpoint(tmp_path / "ckpt")
    KEY.write(tmp_path / "key.pem")
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))

    with pytest.raises(TrustError):
        tensorkeep.reshard(source, tmp_path / "new")
    tensorkeep.reshard(source, tmp_path / "new", trust=False)
    assert tensorkeep.load(tmp_path / "new", trust=False)


def test_a_sharded_model_takes_only_what_is_signed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    tensorkeep.save({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, path)
    model = torch.nn.Linear(3, 2)
    policy = Policy((Rule(keys=(KEY.public,)),))

    with pytest.raises(TrustError, match="no trusted signature"):
        load_sharded(model, path, trust=policy)
    sign(path, KEY)
    load_sharded(model, path, trust=policy)
    assert model.weight.sum() == 6
    with tensorkeep.open(path) as opened, pytest.raises(UnsupportedError, match="`trust` is for what is not open"):
        load_sharded(model, opened, trust=policy)
