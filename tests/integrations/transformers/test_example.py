"""The example runs as its user runs it, and ends as if nobody had killed it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support import ROOT
from tests.support.forks import ForkServer

EXAMPLE = ROOT / "examples" / "transformers_trainer.py"


def test_a_killed_example_ends_with_the_same_bytes(tmp_path: Path) -> None:
    with ForkServer("torch._dynamo", "transformers.trainer") as server:
        whole = server.run(EXAMPLE, tmp_path / "whole", env=os.environ)
        assert not whole.returncode, whole.stderr
        assert whole.stdout.splitlines()[0] == "from the beginning"
        assert float(whole.stdout.split()[-1]) < 1.0, "it has learnt something"

        killed = server.run(EXAMPLE, tmp_path / "killed", "--die-in", "80", env=os.environ)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        resumed = server.run(EXAMPLE, tmp_path / "killed", env=os.environ)

    assert not resumed.returncode, resumed.stderr
    assert resumed.stdout.splitlines()[0] == "from checkpoint-60"
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "model").glob("*.safetensors")}
        for name in ("whole", "killed")
    )
    assert one == other
    assert list(one) == ["model.safetensors"]
