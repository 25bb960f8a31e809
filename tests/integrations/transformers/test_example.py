"""The example runs as its user runs it, and ends as if nobody had killed it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

EXAMPLE = ROOT / "examples" / "transformers_trainer.py"


def run(directory: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, EXAMPLE, directory, *options], capture_output=True, text=True, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode, done.stdout


def test_a_killed_example_ends_with_the_same_bytes(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "whole")
    assert (status, printed.splitlines()[0]) == (0, "from the beginning")
    assert float(printed.split()[-1]) < 1.0, "it has learnt something"

    status, _ = run(tmp_path / "killed", "--die-in", "80")
    assert status == -signal.SIGKILL
    status, printed = run(tmp_path / "killed")

    assert (status, printed.splitlines()[0]) == (0, "from checkpoint-60")
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "model").glob("*.safetensors")}
        for name in ("whole", "killed")
    )
    assert one == other
    assert list(one) == ["model.safetensors"]
