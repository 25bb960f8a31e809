"""The example runs as its first lines say, with fewer ranks the second time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tensorkeep
from tests.support import ROOT, SUPPORT

EXAMPLE = ROOT / "examples" / "distributed_transformer.py"
AS_RANK = SUPPORT / "as_rank.py"


def run(*command: object) -> list[str]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if "loss" in line]


def trained(n_ranks: int, folder: Path, n_steps: int) -> list[str]:
    options = ("--nproc-per-node", n_ranks, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
    return run("-m", "torch.distributed.run", *options, AS_RANK, EXAMPLE, folder, "--steps", n_steps)


def test_four_ranks_train_two_go_on_and_transformers_loads(tmp_path: Path) -> None:
    first = trained(4, tmp_path / "run", 3)
    (said,) = run(EXAMPLE, tmp_path / "run")
    rest = trained(2, tmp_path / "run", 5)

    assert [line.partition(":")[0] for line in first + rest] == [f"step {step}" for step in range(1, 6)]
    found = [float(line.rpartition(" ")[2]) for line in first + rest]
    assert found == sorted(found, reverse=True), "the loss does not fall: something was lost"
    assert float(said.rpartition(" ")[2]) == found[3], "transformers has other weights than the ranks"
    assert tensorkeep.verify(tmp_path / "run" / "last").findings == ()
    assert tensorkeep.load(tmp_path / "run" / "last", only="step") == {"step": 5}
