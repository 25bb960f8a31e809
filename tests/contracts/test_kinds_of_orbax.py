"""Checkpoints of orbax keep the contract of kinds, as far as tensorstore reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contracts.kind import ARRAYS, Arrays, KindContract
from tests.support.formats.orbax_files import save_arrays


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that is written once: orbax takes seconds to begin."""
    directory = tmp_path_factory.mktemp("orbax") / "step"
    save_arrays(ARRAYS, directory)
    return directory


class TestOrbaxCheckpoints(KindContract):
    has_checksums = False
    is_pickled = True
    is_local = True
    is_fetched = False
    engine = "tensorstore"

    def save(self, arrays: Arrays, directory: Path) -> Path:
        save_arrays(arrays, directory / "step")
        return directory / "step"

    @pytest.fixture
    def path(self, saved: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(saved, tmp_path / "saved" / "step"))
