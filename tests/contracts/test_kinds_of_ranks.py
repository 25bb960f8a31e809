"""Directories of ranks keep the contract of kinds."""

from __future__ import annotations

from pathlib import Path

import tensorkeep
from tests.contracts.kind import Arrays, KindContract


class TestDirectoriesOfRanks(KindContract):
    is_fetched = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        tensorkeep.save_checkpoint(arrays, directory / "whole")
        plan = {"layers.1.*": "colwise", "layers.0.*": "rowwise", "layers.2.*": "packed_rowwise:heads=2,1"}
        tensorkeep.reshard_for_ranks(directory / "whole", directory / "ranks", 2, plan=plan)
        return directory / "ranks"
