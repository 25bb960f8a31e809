"""Kills trainings with transformers at random times: `kill_trainer.py DIRECTORY TIMES SEED`. Prints the outcome."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # noqa: F401 - which the first step of an optimizer would import in each run
import transformers

import tensorkeep
from tensorkeep.integrations.transformers import from_pretrained, get_last_checkpoint
from tests.support.integrations.transformers.tiny_trainers import gpt2, trainer
from tests.support.kill_at_random import Ready, kill_at_random

SETTINGS = {
    "max_steps": 100_000,
    "save_steps": 1,
    "save_total_limit": 2,
    "gradient_accumulation_steps": 1,
    "per_device_train_batch_size": 1,
}


class Begin(transformers.TrainerCallback):
    """Says when a run has begun."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._ready()
        self._ready = lambda: None


def train(directory: Path, ready: Ready) -> None:
    resumes = directory.exists()
    settings = SETTINGS if resumes else SETTINGS | {"max_steps": 2}
    run = trainer(directory, model=gpt2(n_embd=128), callbacks=[Begin(ready)], **settings)
    run.train(resume_from_checkpoint=resumes)


def look(directory: Path) -> int:
    """Load the newest checkpoint, and return its step; what lies beside it is whole as well, or not there."""
    numbered = [path for path in directory.iterdir() if path.name.startswith("checkpoint-")]
    assert all(not tensorkeep.checkpoint.verify_folder(path) for path in numbered)
    assert 2 <= len(numbered) <= 6, "the two that stay, and some that were to go when a kill came"
    newest = get_last_checkpoint(directory)
    model = from_pretrained(transformers.AutoModelForCausalLM, newest, verify="require")
    optimizer = tensorkeep.load(f"{newest}/training_state/optimizer.safetensors")
    assert len(optimizer["optimizer"]["state"]) == len(list(model.parameters()))
    state = transformers.TrainerState.load_from_json(f"{newest}/trainer_state.json")
    assert newest == str(directory / f"checkpoint-{state.global_step}")
    return state.global_step


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)  # nothing that is passed over for being damaged
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    torch.set_num_threads(1)
    gc.freeze()  # what was imported, which every run would look through
    os.environ["TQDM_DISABLE"] = "1"
    report = kill_at_random(
        train,
        look,
        Path(sys.argv[1]),
        first=lambda path: train(path, lambda: None),
        times=int(sys.argv[2]),
        seed=int(sys.argv[3]),
        span_s=0.25,
    )
    print(*report[:3], report.progress[-1])
