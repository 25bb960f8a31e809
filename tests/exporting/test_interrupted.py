"""An export that is killed, or finds the disk full, leaves the old file or the new one, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("target", ["model.index", "model.npz"])
def test_the_old_export_or_the_new_one_is_there(target: str, tmp_path: Path) -> None:
    program = [sys.executable, "-W", "ignore", "-m", "tests.support.exporting.killed_export", str(tmp_path), target]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False)
    assert not done.returncode, done.stderr

    found = json.loads(done.stdout)
    for end in ("killed", "full"):
        assert len(found[end]) > 5
        assert {first for first, _ in found[end]} == {1, 2}
        assert {second for _, second in found[end]} == {2}
