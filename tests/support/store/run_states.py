"""States of a run that are recognized as those of one step: what is trained holds its number, what is frozen never
changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tensorkeep.store import RULES_NAME, CheckpointStore

N_LAYERS = 2


def state(step: int) -> dict[str, Any]:
    """Return the state at a step: large frozen tensors between small trained ones, and those of the optimizer."""
    rng = np.random.default_rng(7)
    model: dict[str, Any] = {}
    for n in range(N_LAYERS):
        model[f"layers.{n}.weight"] = rng.normal(size=(512, 300)).astype(np.float32)
        model[f"layers.{n}.adapter"] = np.full((8, 30), step, np.float32)
    moments = {n: {"step": step, "exp_avg": np.full((8, 30), -step, np.float32)} for n in range(N_LAYERS)}
    return {"model": model, "optimizer": {"state": moments, "lr": 1e-3}, "step": step}


def step_of(loaded: dict[str, Any]) -> int:
    """Return the step of a loaded state; it must be all of it and of no other."""
    step = int(loaded["step"])
    expected = state(step)
    assert loaded.keys() == expected.keys()
    assert loaded["model"].keys() == expected["model"].keys()
    for name, tensor in expected["model"].items():
        np.testing.assert_array_equal(loaded["model"][name], tensor, err_msg=name, strict=True)
    assert loaded["optimizer"]["lr"] == 1e-3
    for n, moments in expected["optimizer"]["state"].items():
        assert loaded["optimizer"]["state"][n]["step"] == step
        np.testing.assert_array_equal(loaded["optimizer"]["state"][n]["exp_avg"], moments["exp_avg"], strict=True)
    return step


def store(root: Path | str, **options: Any) -> CheckpointStore:
    """Return a store that does not wait for the disk."""
    return CheckpointStore(root, **{"durable": False, **options})


def names(root: Path | str) -> list[str]:
    """Return all names in a directory, hidden or not, except the rules of a store."""
    return sorted(path.name for path in Path(root).iterdir() if path.name != RULES_NAME)


def shards(root: Path, step: int) -> dict[str, Path]:
    """Return the files of tensors of a step."""
    return {path.name: path for path in sorted((root / f"step-{step:08d}").glob("*.safetensors"))}
