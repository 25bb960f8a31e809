"""`trust=` of functions that read a checkpoint and write or compare another."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.checkpoint.saving._by_executor import MakeTask
from tensorkeep.errors import IntegrityError, TrustError, UnsupportedError
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


class Swapping(ThreadPoolExecutor):
    """Changes a file, but not its time, before the first task that casts tensors of it; tasks are pickled."""

    def __init__(self, path: Path) -> None:
        super().__init__(1)
        self.path = path
        self.is_swapped = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        if isinstance(args[-1], MakeTask) and not self.is_swapped:
            self.is_swapped = True
            before = self.path.stat()
            content = bytearray(self.path.read_bytes())
            content[-1] ^= 1
            self.path.write_bytes(content)
            os.utime(self.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return super().submit(pickle.loads(pickle.dumps(work)), *pickle.loads(pickle.dumps(args)), **options)


@pytest.mark.parametrize("name", ["reshard", "convert"])
def test_workers_cast_only_what_is_signed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w.safetensors"
    tensorkeep.save({"weight": torch.ones(50, 3)}, path)
    sign(path, KEY)
    policy = Policy((Rule(keys=(KEY.public,)),))
    directory = tmp_path / "new"

    with Swapping(path) as executor:
        with pytest.raises(IntegrityError, match="weight"):
            FUNCTIONS[name](path, directory, cast="bf16", trust=policy, executor=executor)
        assert executor.is_swapped
    assert not list(directory.glob("*.safetensors"))


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
