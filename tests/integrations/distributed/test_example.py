"""The example runs as its first lines say, with fewer ranks the second time."""

from __future__ import annotations

from pathlib import Path

import tensorkeep
from tests.support import ROOT, forks
from tests.support.forks import Done

EXAMPLE = ROOT / "examples" / "distributed_transformer.py"


def losses(*processes: Done) -> list[str]:
    assert all(done.returncode == 0 for done in processes), [done.stderr[-3000:] for done in processes]
    return [line for done in processes for line in done.stdout.splitlines() if "loss" in line]


def test_four_ranks_train_two_go_on_and_transformers_loads(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    modules = [forks.TRAINING, "transformers.trainer", "torch.distributed.fsdp"]
    first = losses(*forks.run_ranks(4, EXAMPLE, folder, "--steps", 3, modules=modules))
    (said,) = losses(forks.run(EXAMPLE, folder, modules=modules))
    rest = losses(*forks.run_ranks(2, EXAMPLE, folder, "--steps", 5, modules=modules))

    assert [line.partition(":")[0] for line in first + rest] == [f"step {step}" for step in range(1, 6)]
    found = [float(line.rpartition(" ")[2]) for line in first + rest]
    assert found == sorted(found, reverse=True), "the loss does not fall: something was lost"
    assert float(said.rpartition(" ")[2]) == found[3], "transformers has other weights than the ranks"
    assert tensorkeep.verify(tmp_path / "run" / "last").findings == ()
    assert tensorkeep.load(tmp_path / "run" / "last", only="step") == {"step": 5}
