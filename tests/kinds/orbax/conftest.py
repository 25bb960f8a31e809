"""Checkpoints that orbax wrote, once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.formats.orbax_files import run_orbax


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all forms; see `orbax_program.save_all`."""
    folder = tmp_path_factory.mktemp("orbax")
    run_orbax("save_all", folder)
    return folder


@pytest.fixture(scope="session")
def saved_by_new_functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what `orbax_program.save_by_new_functions` writes."""
    folder = tmp_path_factory.mktemp("orbax-new")
    run_orbax("save_by_new_functions", folder)
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copy one form, to be changed."""
    return lambda name: Path(shutil.copytree(saved / name, tmp_path / name))
