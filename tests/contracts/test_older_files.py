"""Files that version 0.1 wrote are read, verified and added to by this one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep

FILES = Path(__file__).parent / "files_of_0_1"
WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("name", ["state.safetensors", "shards"])
def test_a_state_is_read(name: str) -> None:
    assert tensorkeep.verify(FILES / name).is_whole

    state: dict[Any, Any] = tensorkeep.load(FILES / name, verify=True)

    model = state.pop("model")
    assert state == {"step": 500, "betas": (0.9, 0.999), "names": ["a", None, True], b"key": {2, 3}}
    np.testing.assert_array_equal(model["w"], WEIGHT)
    np.testing.assert_array_equal(model["turned"], WEIGHT.T)
    assert model["half"].dtype == np.float16
    assert np.shares_memory(model["w"], model["tied"])
    assert tensorkeep.open(FILES / name).metadata["by"] == "0.1"


def test_a_store_is_read_and_goes_on(tmp_path: Path) -> None:
    shutil.copytree(FILES / "run", tmp_path / "run")
    store = tensorkeep.CheckpointStore(tmp_path / "run")

    assert (store.steps(), store.latest(), store.best()) == ([100, 200], 200, 200)
    np.testing.assert_array_equal(store.load()["model"]["w"], WEIGHT + 200)

    store.save(300, {"model": {"w": WEIGHT + 300}, "step": 300}, {"loss": 0.001})

    assert store.steps() == [200, 300]
    assert tensorkeep.verify(store.path_of(200)).is_whole
