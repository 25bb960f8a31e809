"""Files to publish over: one that is there, one that is there or not, and whether it is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from publishing import OLD, names


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    target.write_bytes(OLD)
    return target


@pytest.fixture(params=["new", "replaced"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    if request.param == "replaced":
        path.write_bytes(OLD)
    return path


@pytest.fixture
def unchanged(either: Path) -> Callable[[], bool]:
    def check() -> bool:
        there = [either.name] if either.exists() else []
        return names(either.parent) == there and (not there or either.read_bytes() == OLD)

    assert check()
    return check
