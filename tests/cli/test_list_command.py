"""`tensorkeep list`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorkeep.cli import main
from tensorkeep.store import CheckpointStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of three steps, of which the second is the best, and an interrupted and a damaged one."""
    root = tmp_path / "run"
    kept = CheckpointStore(root, keep_last=None, durable=False)
    frozen = np.arange(300_000, dtype=np.float32)
    for step, loss in ((100, 0.75), (200, 0.5), (300, math.nan), (400, 0.125)):
        state = {"frozen": frozen, "optimizer.state": np.full(1000, step), "step": step}
        kept.save(step, state, {"valid_loss": loss, "accuracy": step / 1000})
    os.truncate(root / "step-00000400" / "model.safetensors.index.json", 100)
    (root / "step-00000500").mkdir()
    return root


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["list", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    code, out, err = call(capsys, "--json", *arguments)
    assert (code, err) == (0, "")
    steps: list[dict[str, Any]] = json.loads(out)["steps"]
    return steps


def test_a_table(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, err = call(capsys, root)

    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["step", "saved", "at", "metrics", "size", "own", "shards"]
    assert [line[0] for line in lines[1:]] == ["100", "200", "300", "400", "500"]
    assert lines[1][3:] == ["accuracy=0.1", "valid_loss=0.75", "1.21", "MB", lines[1][7], "kB", "2"]
    assert 9 < float(lines[1][7]) < 10
    assert lines[2][3:5] == ["accuracy=0.2", "valid_loss=0.5"]
    assert lines[2][-1] == "best"
    assert lines[3][4:5] == ["valid_loss=nan"]
    assert lines[3][-1] == "latest"
    assert lines[4][-1] == "damaged"
    assert lines[5] == ["500", "0", "B", "0", "B", "0", "incomplete"]


def test_as_json(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    steps = run_json(capsys, root)

    assert [step["condition"] for step in steps] == ["whole", "whole", "whole", "damaged", "incomplete"]
    assert [step["step"] for step in steps if step["is_latest"]] == [300]
    assert [step["step"] for step in steps if step["is_best"]] == [200]
    assert steps[2]["metrics"] == {"accuracy": 0.3, "valid_loss": "nan"}
    assert steps[0]["path"] == str(root / "step-00000100")
    assert steps[0]["saved_at"].endswith("+00:00")
    assert steps[3]["problem"]
    assert (steps[4]["nbytes"], steps[4]["saved_at"], steps[4]["metrics"]) == (0, None, {})
    for step in steps[:3]:
        files = list(Path(step["path"]).iterdir())
        assert step["nbytes"] == sum(path.stat().st_size for path in files)
        assert step["own_nbytes"] == sum(path.stat().st_size for path in files if path.stat().st_nlink == 1)
        assert step["n_shards"] == 2


def test_another_metric_says_what_is_best(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    steps = run_json(capsys, root, "--monitor", "accuracy", "--max")

    assert [step["step"] for step in steps if step["is_best"]] == [300]


def test_a_metric_that_no_step_has_is_refused(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, err = call(capsys, root, "--monitor", "nope")

    assert (code, out) == (2, "")
    assert "no step has the metric" in err
    assert "expected a step with `nope`, found `accuracy`, `valid_loss`" in err


def test_the_rules_of_the_store_say_what_is_best(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    CheckpointStore(root, monitor="accuracy", mode="max", durable=False).prune()

    assert [step["step"] for step in run_json(capsys, root) if step["is_best"]] == [300]


def test_names_of_metrics_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    CheckpointStore(tmp_path, durable=False).save(1, {"a": 1}, {"[red]x": 1.0, "y" * 500: 2.0})

    _, out, _ = call(capsys, tmp_path)

    assert "[red]x=1" in out
    assert "(500 characters)=2" in out


def test_nothing_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(capsys, tmp_path) == (0, f"no steps in {tmp_path}\n", "")
    assert run_json(capsys, tmp_path) == []

    code, out, err = call(capsys, tmp_path / "none")
    assert (code, out) == (2, "")
    assert err.startswith("error: No such file or directory: ")


def test_the_command_as_users_run_it(run: Any, root: Path) -> None:
    done = run("list", str(root))

    assert (done.returncode, done.stderr) == (0, "")
    assert "incomplete" in done.stdout
