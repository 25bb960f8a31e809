"""Saves that go on while training goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor

import tensorkeep
from tensorkeep.integrations.distributed import TensorkeepWriter
from tests.support.integrations.distributed.gloo_ranks import Ranks, load
from tests.support.integrations.distributed.parallel_models import losses, made, optimizer_of


def copied(value: Any) -> Any:
    """Return a state with whole tensors."""
    if isinstance(value, dict):
        return {str(key): copied(inner) for key, inner in value.items()}
    if isinstance(value, DTensor):
        return value.full_tensor().clone()
    return value.clone() if isinstance(value, torch.Tensor) else value


def train_while_saving(rank: int, path: str, kind: AsyncCheckpointerType, n_saves: int) -> Any:
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # of the processes that torch starts
    model = made("fsdp2")
    optimizer = optimizer_of(model)
    group = dist.new_group(backend="gloo")  # else the collectives of saves and of training mix
    saving = None
    snapshots = []
    for step in range(n_saves):
        losses(model, optimizer, 2)
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "step": step}
        snapshots.append(copied(state))
        if saving is not None:
            saving.result()
        writer = TensorkeepWriter(f"{path}/{step}")
        saving = dcp.async_save(state, storage_writer=writer, process_group=group, async_checkpointer_type=kind)
        losses(model, optimizer, 2)  # with collectives of its own, and other numbers in the same memory
    saving.result()
    return snapshots if rank == 0 else None


def is_alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_alike(one[key], other[key]) for key in one)
    return one.equal(other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize(("kind", "n_saves"), [(AsyncCheckpointerType.THREAD, 2), (AsyncCheckpointerType.PROCESS, 1)])
def test_what_is_saved_is_as_it_was_when_the_save_began(
    ranks: Ranks, tmp_path: Path, kind: AsyncCheckpointerType, n_saves: int
) -> None:
    wanted, _ = ranks.run(train_while_saving, str(tmp_path), kind, n_saves, world=2, timeout_s=120)

    for step in range(n_saves):
        assert tensorkeep.verify(tmp_path / str(step)).findings == ()
        assert is_alike(tensorkeep.load(tmp_path / str(step)), wanted[step])


def fail_in_the_background(rank: int, path: str) -> str:
    saving = dcp.async_save({"w": torch.ones(2), "bad": lambda: None}, storage_writer=TensorkeepWriter(path))
    try:
        saving.result()
    except BaseException as error:
        dcp.async_save({"w": torch.ones(2)}, storage_writer=TensorkeepWriter(path)).result()
        target = {"w": torch.zeros(2)}
        load(target, path)
        assert target["w"].equal(torch.ones(2))
        return str(error)
    raise AssertionError("not refused")


def test_a_save_that_fails_in_the_background_says_so(ranks: Ranks, tmp_path: Path) -> None:
    for text in ranks.run(fail_in_the_background, str(tmp_path / "checkpoint"), world=2):
        assert "'bad' is not data that can be saved" in text
