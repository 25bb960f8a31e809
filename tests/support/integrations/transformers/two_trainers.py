"""A run of two processes, each with the whole model: `torchrun --nproc-per-node 2 two_trainers.py FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

import tensorkeep
from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import SourceMissingError
from tests.support.integrations.transformers.tiny_trainers import assert_equal, trainer, weights

FOLDER, RANK = Path(sys.argv[1]), int(os.environ["RANK"])
SETTINGS: dict[str, Any] = {
    "ddp_backend": "gloo",
    "ddp_find_unused_parameters": False,
    "save_total_limit": 2,
    "eval_strategy": "steps",
    "eval_steps": 5,
    "metric_for_best_model": "loss",
}


class StopAt12(transformers.TrainerCallback):
    """Ends a run between two checkpoints."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == 12


never_stopped = trainer(FOLDER / "one", load_best_model_at_end=True, **SETTINGS)
never_stopped.train()
best = Path(never_stopped.state.best_model_checkpoint)
assert best.parent == FOLDER / "one"
assert all(verify_folder(path) == [] for path in (FOLDER / "one").iterdir())

stopped = trainer(FOLDER / "other", callbacks=[StopAt12()], **SETTINGS)
stopped.train()
torch.distributed.barrier()
if RANK == 0:
    for checkpoint in (FOLDER / "other").glob("checkpoint-1[2-9]"):
        checkpoint.rename(FOLDER / checkpoint.name)
torch.distributed.barrier()

run = trainer(FOLDER / "other", load_best_model_at_end=True, **SETTINGS)
torch.rand(RANK + 1)
run.train(resume_from_checkpoint=True)
assert_equal(weights(run.model), weights(never_stopped.model))
assert Path(run.state.best_model_checkpoint).name == best.name
ends = [
    tensorkeep.load(FOLDER / name / "checkpoint-20" / "training_state" / "processes.safetensors")
    for name in ("one", "other")
]
generators = [[process["rng"]["torch"] for process in end["processes"]] for end in ends]
assert all(torch.equal(one, other) for one, other in zip(*generators, strict=True))
assert len(generators[0]) == 2

in_bucket = f"local://{FOLDER}/bucket"
trainer(in_bucket, callbacks=[StopAt12()], **SETTINGS).train()
run = trainer(in_bucket, load_best_model_at_end=True, **SETTINGS)
torch.rand(RANK + 1)
run.train(resume_from_checkpoint=True)
assert_equal(weights(run.model), weights(never_stopped.model))
assert run.state.best_model_checkpoint == f"{in_bucket}/step-{never_stopped.state.best_global_step:08d}"

try:
    trainer(FOLDER / "nothing", **SETTINGS).train(resume_from_checkpoint=True)
except SourceMissingError:  # in both processes
    print(f"done {RANK}", flush=True)
torch.distributed.destroy_process_group()
