"""The example runs as its first lines say, and a run that was stopped ends as one that was not."""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import tensorkeep
from tests.support import ROOT

EXAMPLE = ROOT / "examples" / "lightning_digits.py"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run_example(directory: Path, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(directory), *options])
        with warnings.catch_warnings():
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        return capsys.readouterr().out

    return run_example


def test_both_runs_end_with_the_same_weights(tmp_path: Path, run: Callable[..., str]) -> None:
    said = run(tmp_path / "whole")
    assert "epochs done: 3 of 6" in run(tmp_path / "stopped", "--stop-after", "3")
    rest = run(tmp_path / "stopped")

    assert rest == said
    assert float(said.split("recognizes ")[1].split(" %")[0]) > 90
    with (
        tensorkeep.open(tmp_path / "whole" / "last.ckpt") as one,
        tensorkeep.open(tmp_path / "stopped" / "last.ckpt") as other,
    ):
        for part in ("state_dict.*", "optimizer_states.*"):
            assert tensorkeep.diff(one.select(part), other.select(part)).is_equal
    assert sorted(path.name for path in (tmp_path / "whole").iterdir())[-1] == "last.ckpt"
