"""`tensorkeep inspect --ranks`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tensors = {"w": np.zeros((1000, 10), np.float32), "b": np.zeros(3, np.float32), "s": np.array(1.0, np.float32)}
    tensorkeep.save_checkpoint(tensors, tmp_path / "model")
    return tmp_path / "model"


def test_each_rank_has_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder), "--ranks", "4"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        str(folder),
        "  4 ranks, tensors cut along dimension 0; all ranks read those without it",
        "",
        "rank  tensors   wanted     read  requests",
        "0           3  10.0 kB  10.0 kB         2",
        "1           3  10.0 kB  10.0 kB         3",
        "2           3  10.0 kB  10.0 kB         2",
        "3           2  10.0 kB  10.0 kB         2",
        "all            40.0 kB  40.0 kB         9",
        "",
        "rank 0 reads most: 10.0 kB, 1.00 times the mean",
    ]


def test_of_many_ranks_the_ends_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder), "--ranks", "1024", "--dim", "1"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[12].split() == ["8..1015", "…", "…", "…", "…"]
    assert lines[4].split() == ["0", "3", "4.02", "kB", "4.02", "kB", "1,001"]
    assert lines[20].split() == ["1023", "2", "16", "B", "16", "B", "1"]


def test_views_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder), "--ranks", "4", "--flat"]) != 0
    assert "--flat" in capsys.readouterr().err
    assert main(["inspect", str(folder), "--ranks", "0"]) != 0
