"""The newest of several directories that is whole, of which some are damaged or removed meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorkeep.errors import FormatError, IntegrityError, TensorkeepError
from tensorkeep.store import load_newest_whole


def loader_of(*damaged: str) -> Callable[[str], str]:
    def load(path: str) -> str:
        if not Path(path).is_dir():
            raise IntegrityError("gone", path=path)
        if Path(path).name in damaged:
            raise IntegrityError("damaged", path=path)
        return Path(path).name.upper()

    return load


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / name).mkdir()
    return tmp_path


def newest_first(root: Path) -> list[str]:
    return [str(path) for path in sorted(root.iterdir(), reverse=True)]


def test_the_first_that_loads_is_taken_and_damage_is_reported(root: Path) -> None:
    damage: dict[str, TensorkeepError] = {}

    found = load_newest_whole(lambda: newest_first(root), loader_of("c"), damage.__setitem__)

    assert found == (str(root / "b"), "B")
    assert list(damage) == [str(root / "c")]


def test_without_a_whole_one_there_is_none(root: Path) -> None:
    damage: dict[str, TensorkeepError] = {}

    assert load_newest_whole(lambda: newest_first(root), loader_of(*"abc"), damage.__setitem__) is None
    assert [Path(path).name for path in damage] == ["c", "b", "a"]


def test_one_that_is_removed_meanwhile_is_not_damaged(root: Path) -> None:
    damage: dict[str, TensorkeepError] = {}

    def load(path: str) -> str:
        if Path(path).name == "c":  # as another process would, once a newer one is complete
            (root / "d").mkdir()
            shutil.rmtree(root / "c")
        return loader_of()(path)

    assert load_newest_whole(lambda: newest_first(root), load, damage.__setitem__) == (str(root / "d"), "D")
    assert damage == {}


def test_other_errors_are_raised(root: Path) -> None:
    with pytest.raises(IntegrityError):
        load_newest_whole(lambda: newest_first(root), loader_of("c"), lambda *_: None, (FormatError,))
