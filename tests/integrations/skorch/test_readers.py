"""Who loads a net that is being saved gets all parts of one epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support import SUPPORT

PROGRAM = SUPPORT / "integrations" / "skorch" / "read_during_saves.py"


def test_readers_get_one_epoch(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", PROGRAM, tmp_path, "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert not done.returncode, done.stderr
    epochs = json.loads(done.stdout)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 3
