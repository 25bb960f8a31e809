"""A net that goes on in a new process is to the last bit the net that was never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensorkeep
from tests.support import SUPPORT, forks
from tests.support.integrations.skorch.nets import same
from tests.support.integrations.skorch.resumed import N_HALF, RECIPES

PROGRAM = SUPPORT / "integrations" / "skorch" / "resumed.py"

STOPPED = {"patience before": 9, "patience after": 9, "patience at an end": 3}
"""Recipes that early stopping ends, and after how many epochs."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each recipe came to: at once, after the first half, and after the second in a new process."""
    folder = tmp_path_factory.mktemp("nets")
    for phase in ("whole", "first", "second"):
        done = forks.run(PROGRAM, phase, folder, modules=forks.SKORCH)
        assert not done.returncode, done.stderr
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_two_halves_are_a_whole(directory: Path, name: str) -> None:
    first, second, whole = (
        tensorkeep.load(directory / name / f"{phase}.safetensors") for phase in ("first", "second", "whole")
    )

    assert second.keys() == whole.keys()
    for part, state in whole.items():
        assert same(second[part], state), part
    n_epochs = STOPPED.get(name, 2 * N_HALF)
    assert len(whole["history"]) == n_epochs
    assert len(first["history"]) == min(n_epochs, N_HALF)
    assert n_epochs <= N_HALF or not same(first["module"], second["module"])
