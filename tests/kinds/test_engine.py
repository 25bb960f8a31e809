"""`engine=`: another library reads the files, if the kind has one by that name and the caller asked for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import UnsupportedError


@pytest.fixture
def path(tmp_path: Path) -> str:
    tensorkeep.save({"w": np.ones(2)}, tmp_path / "model.safetensors")
    return str(tmp_path / "model.safetensors")


def test_a_kind_without_other_libraries_refuses_them(path: str, tmp_path: Path) -> None:
    for use in (
        lambda: tensorkeep.open(path, engine="h5py"),
        lambda: tensorkeep.load(path, engine="h5py"),
        lambda: tensorkeep.verify(path, engine="h5py"),
        lambda: tensorkeep.convert(path, tmp_path / "new.safetensors", engine="h5py"),
        lambda: tensorkeep.export(path, tmp_path / "new.npz", engine="h5py"),
    ):
        with pytest.raises(UnsupportedError, match=r"or no engine \(--engine\), found 'h5py'"):
            use()


@pytest.mark.parametrize("command", [["inspect"], ["slice"], ["verify"], ["convert"], ["export"]])
def test_commands_take_an_engine(
    command: list[str], path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = {"slice": ["w"], "convert": [str(tmp_path / "new")], "export": [str(tmp_path / "new.npz")]}

    assert main([*command, path, *rest.get(command[0], []), "--engine", "h5py"]) in {1, 2}
    assert "no engine (--engine), found 'h5py'" in capsys.readouterr().err
