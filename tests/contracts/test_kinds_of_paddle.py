"""Files of PaddlePaddle keep the contract of kinds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from tests.contracts.kind import Arrays, KindContract
from tests.support.formats.paddle_files import written_by_paddle


class TestPaddleStateDicts(KindContract):
    is_pickled: ClassVar[bool] = True
    has_checksums: ClassVar[bool] = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        return Path(shutil.copy(written_by_paddle() / "contract.pdparams", directory / "model.pdparams"))


class TestPaddleParameters(KindContract):
    has_checksums: ClassVar[bool] = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        for name in ("contract.pdiparams", "contract.pdmodel"):
            shutil.copy(written_by_paddle() / name, directory / name)
        return directory / "contract.pdiparams"
