"""Checkpoints of orbax keep the contract of kinds, read by tensorkeep and by tensorstore."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tensorkeep
from tests.contracts.kind import ARRAYS, Arrays, KindContract, flip
from tests.support.formats.orbax_files import save_arrays


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that is written once: orbax takes seconds to begin."""
    directory = tmp_path_factory.mktemp("orbax") / "step"
    save_arrays(ARRAYS, directory)
    return directory


class TestOrbaxCheckpoints(KindContract):
    is_pickled = True

    def save(self, arrays: Arrays, directory: Path) -> Path:
        save_arrays(arrays, directory / "step")
        return directory / "step"

    @pytest.fixture
    def path(self, saved: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(saved, tmp_path / "saved" / "step"))

    def test_a_changed_byte_is_found(self, path: Path) -> None:
        """The arrays are within a node of the database, which is checked as a whole."""
        before = tensorkeep.verify(path)
        assert (before.findings, before.n_checked, before.is_whole) == ((), len(self.arrays), True)
        (tree,) = (path / "d").iterdir()
        flip(tree, 100)

        after = tensorkeep.verify(path)

        assert [(finding.kind, finding.shard) for finding in after.findings] == [("header", f"d/{tree.name}")]
        assert after.is_damaged


class TestOrbaxCheckpointsByTensorstore(TestOrbaxCheckpoints):
    has_checksums = False
    is_fetched = True
    is_local = True
    engine = "tensorstore"

    def test_a_changed_byte_is_found(self, path: Path) -> None:
        KindContract.test_a_changed_byte_is_found(self, path)
