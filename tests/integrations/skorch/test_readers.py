"""Who loads a net that is being saved gets all parts of one epoch."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import SUPPORT, forks

PROGRAM = SUPPORT / "integrations" / "skorch" / "read_during_saves.py"


def test_readers_get_one_epoch(tmp_path: Path) -> None:
    done = forks.run(PROGRAM, tmp_path, 2, modules=forks.SKORCH)

    assert not done.returncode, done.stderr
    epochs = json.loads(done.stdout)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 3
