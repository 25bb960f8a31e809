"""Files to publish over: one that is there, one that is there or not, and whether it is as it was."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.transport.publishing import OLD, names


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Give a folder that every user may enter; pytest closes its own to others whenever a run starts."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


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
