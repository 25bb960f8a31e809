"""The memory of writing views, in a module of its own: nothing that it imports keeps threads, and it forks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorkeep
from tensorkeep.tensors import LazyTensors
from tests.support.peak_memory import with_peak


def test_views_are_streamed_in_bounded_memory(tmp_path: Path) -> None:
    large = np.zeros((32, 2**20), np.float32)
    large[:, 0] = np.arange(32)
    tensorkeep.save({"w": large}, tmp_path / "a.safetensors")

    def peak(write: Callable[[LazyTensors], Any]) -> int:
        with tensorkeep.open(tmp_path / "a.safetensors", framework="numpy", backend="pread") as file:
            return with_peak(write, file.map(lambda rows: rows + 1, scope="rows"))[1]

    for write in (
        lambda view: tensorkeep.reshard(view, tmp_path / "b"),
        lambda view: tensorkeep.reshard_for_ranks(view, tmp_path / "c", 2, plan={"w": "rowwise"}).nbytes,
        lambda view: tensorkeep.export(view, tmp_path / "d.npy").nbytes,
    ):
        assert peak(write) < large.nbytes / 2
    for place in ("b", "c"):
        assert np.array_equal(tensorkeep.open(tmp_path / place, framework="numpy")["w"][:, 0], np.arange(32) + 1)
    assert np.array_equal(np.load(tmp_path / "d.npy")[:, 0], np.arange(32) + 1)
