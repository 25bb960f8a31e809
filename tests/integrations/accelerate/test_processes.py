"""Two processes save into one directory, go on from it, and fail together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tensorkeep
from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import StateDictMismatchError
from tests.support import SUPPORT, forks
from tests.support.integrations.accelerate.runs import make_run

HERE = SUPPORT / "integrations" / "accelerate"


def launch(folder: Path, part: str) -> list[dict[str, Any]]:
    """Run a part in two processes, and return what each of them wrote."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    for done in forks.run_ranks(2, HERE / "two_processes.py", folder, part, modules=forks.ACCELERATE, env=env):
        assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{part}_{rank}.json").read_text()) for rank in range(2)]


def test_two_processes(tmp_path: Path) -> None:
    first = launch(tmp_path, "first")
    second = launch(tmp_path, "second")

    assert first[0]["whole"] != first[1]["whole"]
    for begun, went_on in zip(first, second, strict=True):
        assert begun["begun"] + went_on["rest"] == begun["whole"]
        assert went_on["shuffled"] == begun["shuffled"][-len(went_on["shuffled"]) :]
    names = {path.name for path in (tmp_path / "amid").iterdir()}
    assert {"process_0.safetensors", "process_1.safetensors", "model.safetensors"} < names
    assert verify_folder(tmp_path / "amid") == verify_folder(tmp_path / "between") == []
    assert set(tensorkeep.open(tmp_path / "model")) == set(make_run(0).model.state_dict())
    assert not [path for path in tmp_path.rglob("*") if "tensorkeep-" in path.name]

    main, other = (found["failures"] for found in first)
    assert main[0] == "ZeroDivisionError: in 0"
    assert other[0].startswith("TensorkeepError: ZeroDivisionError: in 0 This error was raised in process 0")
    assert other[1] == "ZeroDivisionError: in 1"
    assert main[1].startswith("TensorkeepError: ZeroDivisionError: in 1 This error was raised in process 1")
    for number, kind in ((2, "StateError"), (3, "TransportError"), (4, "TransportError"), (5, "SourceMissingError")):
        assert main[number].startswith(f"{kind}: ")
        assert other[number].startswith(main[number].partition(" This is")[0])
        assert "This error was raised in process 0" in other[number]

    assert second[0]["alone"].startswith("save_state() waits for the other processes: call save_state() in all")
    assert "TensorkeepError: not all processes have called save_state()" in second[0]["alone"]
    assert second[1]["alone"] == ""

    alone = make_run(9)
    with pytest.raises(StateDictMismatchError, match="expected 1 processes, found 2"):
        alone.accelerator.load_state(tmp_path / "amid")
    alone.accelerator.load_state(tmp_path / "amid", rng=False)
