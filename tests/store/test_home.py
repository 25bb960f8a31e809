"""A store in the directory of the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorkeep import CheckpointStore


def test_a_tilde_is_the_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store = CheckpointStore("~/run")

    path = store.save(3, {"weight": np.ones(2)})

    assert Path(path).parent == tmp_path / "home" / "run"
    assert CheckpointStore(Path("~/run")).load()["weight"].tolist() == [1, 1]
    assert [each.name for each in tmp_path.iterdir()] == ["home"]
