"""Saves that go wrong on one rank, at a place that is chosen, or anywhere."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.tensor import Shard

import tensorkeep
from tensorkeep.integrations.distributed import TensorkeepWriter
from tests.support.integrations.distributed.placed_tensors import spread

__all__ = [
    "ANY",
    "FailingPlanner",
    "contents",
    "save_apart",
    "save_number",
    "save_when_ready",
    "state",
    "try_to_save",
    "whole_number",
]

N_TENSORS, SHAPE = 12, (64, 96)
ANY = -2
"""Whichever rank comes to the step."""


def state(number: int, shape: tuple[int, ...] = SHAPE) -> dict[str, Any]:
    """A state in which all numbers are one, spread over four ranks by rows and by columns."""
    whole = torch.full(shape, float(number))
    tensors: dict[str, Any] = {f"w{place}": spread(whole, (4,), [Shard(place % 2)]) for place in range(N_TENSORS)}
    return {**tensors, "plain": whole.clone(), "number": number}


def save_number(rank: int, path: str, number: int, options: dict[str, Any]) -> None:
    dcp.save(state(number), storage_writer=TensorkeepWriter(path, **options))


def save_apart(rank: int, path: str, is_absolute: bool) -> str:
    """Save where each rank was told, and return what it raises; relative paths of one directory are one place."""
    mine = f"{path}-{rank}" if is_absolute else os.path.relpath(path) if rank % 2 else path
    try:
        dcp.save(state(2), storage_writer=TensorkeepWriter(mine))
    except CheckpointException as error:
        return "\n".join(f"{number}: {cause}" for number, (cause, _) in sorted(error.failures.items()))
    return ""


def save_when_ready(rank: int, path: str, number: int, ready: str) -> None:
    """Make a file when all ranks are about to save."""
    made = state(number)
    dist.barrier()
    if rank == 0:
        Path(ready).touch()
    dcp.save(made, storage_writer=TensorkeepWriter(path, max_shard_size="60KB", timeout_s=1.0))


def whole_number(path: Path) -> int:
    """Return which state a checkpoint holds, all of it."""
    assert tensorkeep.verify(path).findings == ()
    loaded = tensorkeep.load(path)
    number = loaded["number"]
    assert len(loaded) == N_TENSORS + 2
    assert all(bool((tensor == number).all()) for name, tensor in loaded.items() if name != "number")
    return int(number)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


class FailingPlanner(dcp.DefaultSavePlanner):
    """Fails in a step of the save on one rank: raises, or ends the process."""

    def __init__(self, rank: int, failing: int, step: str) -> None:
        super().__init__()
        self._step = step if failing in {rank, ANY} else ""
        self._n_resolved = 0

    def create_local_plan(self) -> Any:
        self._fail_in("plan")
        return super().create_local_plan()

    def finish_plan(self, new_plan: Any) -> Any:
        self._fail_in("finish_plan")
        return super().finish_plan(new_plan)

    def lookup_object(self, index: Any) -> Any:
        if index.fqn == "number":
            self._fail_in("values")
        return super().lookup_object(index)

    def resolve_data(self, write_item: Any) -> Any:
        self._n_resolved += 1
        if self._n_resolved == 5:
            self._fail_in("write")
            if self._step == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return super().resolve_data(write_item)

    def _fail_in(self, step: str) -> None:
        if self._step == step:
            raise RuntimeError(f"failed in {step}")


def try_to_save(
    rank: int, path: str, failing: int, step: str, options: dict[str, Any]
) -> tuple[float, dict[int, str]]:
    """Return the seconds that it took, and what each rank said; then save again."""
    begin = time.monotonic()
    try:
        dcp.save(
            state(2),
            storage_writer=TensorkeepWriter(path, max_shard_size="60KB", **options),
            planner=FailingPlanner(rank, failing, step),
        )
    except CheckpointException as error:
        said = {number: f"{type(cause).__name__}: {cause}" for number, (cause, _) in error.failures.items()}
    except RuntimeError as error:  # of gloo, when a rank is gone
        said = {rank: f"gone: {error}"}
    else:
        said = {}
    return time.monotonic() - begin, said
