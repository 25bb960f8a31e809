"""An index may name thousands of files that are not there: that takes no longer than to look for each."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import tensorkeep
from tensorkeep.errors import SourceMissingError


def test_many_missing_shards_beside_many_long_names(tmp_path: Path) -> None:
    for n in range(300):
        (tmp_path / f"{n:04}{'abcdefgh' * 28}.bin").touch()
    names = {str(n): f"{'hgfedcba' * 28}{n:05}.safetensors" for n in range(1_000)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    start = time.perf_counter()
    with pytest.raises(SourceMissingError, match="shards of the checkpoint are missing"):
        tensorkeep.open(tmp_path)
    assert len(tensorkeep.verify(tmp_path).findings) >= len(names)
    assert time.perf_counter() - start < 10
