"""The example runs as its user runs it, and ends as if nobody had killed it."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support import ROOT, forks

EXAMPLE = ROOT / "examples" / "transformers_trainer.py"


def test_a_killed_example_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = forks.run(EXAMPLE, tmp_path / "whole", modules=forks.TRANSFORMERS)
    assert not whole.returncode, whole.stderr
    assert whole.stdout.splitlines()[0] == "from the beginning"
    assert float(whole.stdout.split()[-1]) < 1.0, "it has learnt something"

    killed = forks.run(EXAMPLE, tmp_path / "killed", "--die-in", "80", modules=forks.TRANSFORMERS)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = forks.run(EXAMPLE, tmp_path / "killed", modules=forks.TRANSFORMERS)

    assert not resumed.returncode, resumed.stderr
    assert resumed.stdout.splitlines()[0] == "from checkpoint-60"
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "model").glob("*.safetensors")}
        for name in ("whole", "killed")
    )
    assert one == other
    assert list(one) == ["model.safetensors"]
