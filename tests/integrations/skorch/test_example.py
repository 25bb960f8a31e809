"""The example goes on after it was killed, and ends as if it never had been."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import tensorkeep
from tests.support import ROOT
from tests.support.integrations.skorch.nets import same

EXAMPLE = ROOT / "examples" / "skorch_digits.py"


def run(directory: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-W", "ignore", EXAMPLE, directory, *options]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout


def test_it_ends_as_if_nobody_had_killed_it(tmp_path: Path) -> None:
    status, said = run(tmp_path / "whole")
    assert not status
    assert float(re.search(r"accuracy: (\S+)", said)[1]) > 0.9

    assert run(tmp_path / "killed", "--die-in", "4")[0] == -signal.SIGKILL
    assert len(json.loads((tmp_path / "killed" / "history.json").read_text())) == 3
    status, again = run(tmp_path / "killed")

    assert not status
    assert again.splitlines()[-1] == said.splitlines()[-1]
    for name in ("params", "optimizer", "training"):
        one, other = (tensorkeep.load(tmp_path / run / f"{name}.safetensors") for run in ("whole", "killed"))
        one, other = (state.get("callbacks", state) for state in (one, other))  # of the training, the schedule
        assert same(one, other), name
