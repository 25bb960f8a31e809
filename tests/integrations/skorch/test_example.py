"""The example goes on after it was killed, and ends as if it never had been."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import tensorkeep
from tests.support import ROOT, forks
from tests.support.integrations.skorch.nets import same

EXAMPLE = ROOT / "examples" / "skorch_digits.py"


def test_it_ends_as_if_nobody_had_killed_it(tmp_path: Path) -> None:
    whole = forks.run(EXAMPLE, tmp_path / "whole", modules=forks.SKORCH)
    assert not whole.returncode, whole.stderr
    assert float(re.search(r"accuracy: (\S+)", whole.stdout)[1]) > 0.9

    killed = forks.run(EXAMPLE, tmp_path / "killed", "--die-in", "4", modules=forks.SKORCH)
    assert killed.returncode == -signal.SIGKILL
    assert len(json.loads((tmp_path / "killed" / "history.json").read_text())) == 3
    resumed = forks.run(EXAMPLE, tmp_path / "killed", modules=forks.SKORCH)

    assert not resumed.returncode, resumed.stderr
    assert resumed.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    for name in ("params", "optimizer", "training"):
        one, other = (tensorkeep.load(tmp_path / run / f"{name}.safetensors") for run in ("whole", "killed"))
        one, other = (state.get("callbacks", state) for state in (one, other))  # of the training, the schedule
        assert same(one, other), name
