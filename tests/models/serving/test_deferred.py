"""Tensors that are read where their values are used: right values, whatever a program does, and no other bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.models import DeferredTensor, deferred_tensors
from tensorkeep.tensors import LazyTensor
from tests.support.engines.parallel_model import ParallelModel, saved_weights


@pytest.fixture(scope="module")
def saved() -> dict[str, torch.Tensor]:
    return saved_weights()


@pytest.fixture(scope="module")
def data(saved: dict[str, torch.Tensor]) -> bytes:
    return tensorkeep.torch.save(saved)


def opened(source: Any) -> Any:
    return tensorkeep.open(source, framework="torch")


def n_read_by_process() -> int:
    """Return the bytes that this process has read by system calls."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="nothing counts reads here")
@pytest.mark.parametrize("world", [1, 2, 8])
def test_each_rank_reads_its_part_and_hardly_more(
    tmp_path: Path, saved: dict[str, torch.Tensor], data: bytes, world: int
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    tensors = tensorkeep.open(path, framework="torch", backend="pread")
    models = [ParallelModel(rank, world) for rank in range(world)]
    ParallelModel(0, world).load_weights(deferred_tensors(tensors))  # what is imported on first use is read as well
    before = n_read_by_process()

    for model in models:
        model.load_weights(deferred_tensors(tensors))

    assert n_read_by_process() - before < 1.01 * len(data) + world * 50_000
    assert all(model.is_loaded(saved) for model in models)


@pytest.mark.parametrize("form", ["mapped", "pread", "pickle", "sharded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_kind_of_file_fills_a_model(tmp_path: Path, form: str, dtype: torch.dtype) -> None:
    saved = saved_weights(torch.bfloat16)
    path = tmp_path / form
    if form == "pickle":
        torch.save(saved, path)
    elif form == "sharded":
        tensorkeep.save_checkpoint(saved, path, max_shard_size="3MB")
    else:
        tensorkeep.torch.save_file(saved, path)
    backend = "pread" if form == "pread" else "auto"

    model = ParallelModel(1, 2, dtype)
    model.load_weights(deferred_tensors(tensorkeep.open(path, framework="torch", backend=backend)))

    assert model.is_loaded(saved)


USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda w: w.sum(),
    "item": lambda w: w[3, 5].item(),
    "transposed": lambda w: w.t().narrow(0, 1, 2),
    "steps": lambda w: w[::3, 5:9],
    "negative": lambda w: w[-5:, -3],
    "mask": lambda w: w[w > 2],
    "list": lambda w: w[[1, 5]],
    "chunk": lambda w: torch.cat(w.chunk(3, dim=1), dim=1),
    "split": lambda w: w.split([200, 312])[1],
    "unbound": lambda w: w.unbind(1)[7],
    "iterated": lambda w: list(w[:3])[2],
    "viewed": lambda w: w.view(-1, 2)[4],
    "cast": lambda w: w.to(torch.bfloat16),
    "moved": lambda w: w.to("cpu", copy=True),
    "cloned": lambda w: w[2:4].clone(),
    "copied": copy.deepcopy,
    "compared": lambda w: torch.allclose(w, w.clone()),
    "empty": lambda w: w[5:5],
    "contiguous": lambda w: w[:, 3:5].contiguous().float(),
    "added": lambda w: 1 + w,
    "changed": lambda w: w[:4].mul_(2) + w[:4],
    "part of changed": lambda w: (w[0].zero_(), w.narrow(0, 0, 2).sum())[1],
    "assigned": lambda w: (w.__setitem__(slice(0, 2), 7.0), w[0:3])[1],
    "copied into": lambda w: (w[1].copy_(w[0]), w[:2])[1],
    "written out": lambda w: torch.add(w, 1, out=torch.empty(512, 1024)),
}


@pytest.mark.parametrize("use", USES)
def test_any_use_gives_what_a_plain_tensor_gives(saved: dict[str, torch.Tensor], data: bytes, use: str) -> None:
    deferred = dict(deferred_tensors(opened(data)))["down"]
    plain = saved["down"].clone()
    assert type(deferred) is DeferredTensor

    found, expected = USES[use](deferred), USES[use](plain)

    assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
    assert deferred.clone().equal(plain)  # after changes in place, too


def test_what_a_tensor_is_costs_no_read(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = dict(deferred_tensors(opened(data)))["experts"]
    monkeypatch.setattr(LazyTensor, "__getitem__", None)

    part = weight[2].narrow(0, 5, 10).detach()[:, 3:]

    assert (part.shape, part.dtype, part.device.type, part.numel()) == ((10, 509), torch.float32, "cpu", 5090)
    assert "experts" in repr(part)
    torch.empty(10, 509, device="meta").copy_(part)


def test_uses_that_would_need_memory_are_refused(data: bytes) -> None:
    weight = dict(deferred_tensors(opened(data)))["down"]

    with pytest.raises(RuntimeError):
        weight.numpy()
