"""Checkpoints of TensorFlow keep the contract of kinds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from tests.contracts.kind import Arrays, KindContract
from tests.support.formats.tensorflow_files import written_by_tensorflow


class _Written(KindContract):
    written: ClassVar[str]

    def save(self, arrays: Arrays, directory: Path) -> Path:
        for file in written_by_tensorflow().glob(f"{self.written}.*"):
            if not file.name.endswith(".json"):
                shutil.copy(file, directory)
        return directory / f"{self.written}.index"


class TestNamedTensors(_Written):
    written = "contract"


class TestObjects(_Written):
    written = "objects"


class TestShards(_Written):
    written = "sharded"


class TestTensorsInParts(_Written):
    written = "sliced"


class TestSavedModels(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        return Path(shutil.copytree(written_by_tensorflow() / "contract-program", directory / "model"))
