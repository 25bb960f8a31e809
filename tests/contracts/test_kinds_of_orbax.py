"""Checkpoints of orbax keep the contract of kinds, read by tensorkeep and by tensorstore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

import tensorkeep
from tests.contracts.kind import ARRAYS, Arrays, KindContract, flip
from tests.support.formats.orbax_files import save_arrays


@pytest.fixture(scope="class")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that is written once: orbax takes seconds to begin."""
    directory = tmp_path_factory.mktemp("orbax") / "step"
    save_arrays(ARRAYS, directory, request.cls.form)
    return directory


class _Written(KindContract):
    is_pickled = True
    form: ClassVar[str]

    def save(self, arrays: Arrays, directory: Path) -> Path:
        save_arrays(arrays, directory / "step", self.form)
        return directory / "step"

    @pytest.fixture
    def path(self, saved: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(saved, tmp_path / "saved" / "step"))


class TestOrbaxCheckpoints(_Written):
    form = "ocdbt-zarr2"

    def test_a_changed_byte_is_found(self, path: Path) -> None:
        """The arrays are within a node of the database, which is checked as a whole."""
        before = tensorkeep.verify(path)
        assert (before.findings, before.n_checked, before.is_whole) == ((), len(self.arrays), True)
        (tree,) = (path / "d").iterdir()
        flip(tree, 100)

        after = tensorkeep.verify(path)

        assert [(finding.kind, finding.shard) for finding in after.findings] == [("header", f"d/{tree.name}")]
        assert after.is_damaged


class TestOrbaxCheckpointsOfZarr3(TestOrbaxCheckpoints):
    form = "ocdbt-zarr3"


class TestOrbaxFiles(_Written):
    form = "files-zarr2"
    has_checksums = False
    is_fetched = False


class TestOrbaxFilesOfZarr3(TestOrbaxFiles):
    form = "files-zarr3"


class TestOrbaxCheckpointsByTensorstore(TestOrbaxCheckpoints):
    has_checksums = False
    is_fetched = True
    is_local = True
    engine = "tensorstore"

    def test_a_changed_byte_is_found(self, path: Path) -> None:
        KindContract.test_a_changed_byte_is_found(self, path)
