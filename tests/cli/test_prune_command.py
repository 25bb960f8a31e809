"""`tensorkeep prune`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.store import RULES_NAME
from tests.support.store.run_states import store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    kept = store(tmp_path / "run", keep_last=None)
    for step in range(5):
        kept.save(step, {"step": step}, {"valid_loss": step, "acc": step})
    return tmp_path / "run"


def test_the_rules_of_the_store_decide(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    assert main(["prune", str(root)]) == 0
    assert capsys.readouterr().out == f"the rules keep all steps in {root}\n"
    assert store(root).steps() == [0, 1, 2, 3, 4]


def test_options_replace_them(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    options = [str(root), "--keep-last", "1", "--monitor", "acc", "--max", "--keep-every", "2"]

    assert main(["prune", "--dry-run", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(root), "dry_run": True, "removed": [1, 3]}
    assert main(["prune", "--dry-run", *options]) == 0
    assert capsys.readouterr().out == "would remove 2 steps: 1, 3\n"
    assert store(root).steps() == [0, 1, 2, 3, 4]

    assert main(["prune", *options]) == 0
    assert capsys.readouterr().out == "removed 2 steps: 1, 3\n"
    assert store(root).steps() == [0, 2, 4]
    assert store(root).best() == 4


@pytest.mark.parametrize("options", [["--keep-last", "many"], ["--keep-last", "0"], ["--keep-every", "-1"]])
def test_what_is_no_rule_is_refused(capsys: pytest.CaptureFixture[str], root: Path, options: list[str]) -> None:
    assert main(["prune", str(root), *options]) == 2
    assert "is invalid" in capsys.readouterr().err


def test_without_rules_they_are_asked_for(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    (root / RULES_NAME).unlink()

    assert main(["prune", str(root)]) == 2
    assert "the rules of the store are not known" in capsys.readouterr().err


def test_a_directory_without_steps_stays_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"a": np.ones(3)}, tmp_path)
    before = sorted(tmp_path.iterdir())

    assert main(["prune", str(tmp_path), "--keep-last", "1"]) == 0
    assert capsys.readouterr().out == f"no steps in {tmp_path}\n"
    assert sorted(tmp_path.iterdir()) == before
