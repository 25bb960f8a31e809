"""Train a small GPT to continue sequences. Killed at any time, it resumes from the last intact checkpoint.

    python examples/transformers_trainer.py run
    python examples/transformers_trainer.py run --die-in 60    # kills itself while it saves step 60

Sequences are numbers with a constant step, such as 3 7 11 15. Started again, it ends with the same weights, to the
last bit, as an uninterrupted run.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed

from tensorkeep.integrations.transformers import Trainer, get_last_checkpoint

N_NUMBERS = 20
LENGTH = 12


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """All sequences: the first number is one of `N_NUMBERS`, the step 1 to 4."""

    def __len__(self) -> int:
        return N_NUMBERS * 4

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        first, step = place % N_NUMBERS, place // N_NUMBERS + 1
        row = (first + step * torch.arange(LENGTH)) % N_NUMBERS
        return {"input_ids": row, "labels": row}


class DyingTrainer(Trainer):
    """Dies at the worst moment: the model is saved, the optimizer is not."""

    die_in: int | None = None

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.state.global_step == self.die_in:
            os.kill(os.getpid(), signal.SIGKILL)  # nothing is closed, flushed or cleaned up
        super()._save_optimizer_and_scheduler(output_dir)


def make_trainer(directory: Path) -> DyingTrainer:
    """Return a Trainer that runs 120 steps, saves every 20, and keeps the last two and the best checkpoint."""
    set_seed(0)
    sizes: dict[str, Any] = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": LENGTH}
    config = GPT2Config(vocab_size=N_NUMBERS, **sizes, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        output_dir=str(directory),
        max_steps=120,
        per_device_train_batch_size=32,
        learning_rate=0.01,
        lr_scheduler_type="cosine",
        save_steps=20,
        save_total_limit=3,
        eval_strategy="steps",
        eval_steps=20,
        metric_for_best_model="loss",
        load_best_model_at_end=True,
        logging_steps=20,
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
    )
    return DyingTrainer(GPT2LMHeadModel(config), arguments, train_dataset=Rows(), eval_dataset=Rows())


def main(directory: Path, die_in: int | None) -> None:
    """Train to the end, and save the best model.

    Args:
        directory: Where to keep checkpoints.
        die_in: Step during whose save the process kills itself.
    """
    torch.set_num_threads(1)  # more are slower for so small a model
    directory.mkdir(parents=True, exist_ok=True)
    trainer = make_trainer(directory)
    trainer.die_in = die_in
    last = get_last_checkpoint(directory)
    print("from the beginning" if last is None else f"from {Path(last).name}", flush=True)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(str(directory / "model"))
    print(f"best: {Path(trainer.state.best_model_checkpoint).name}, loss {trainer.state.best_metric:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where to keep checkpoints")
    parser.add_argument("--die-in", type=int, metavar="STEP", help="kill this process while it saves that step")
    options = parser.parse_args()
    main(options.directory, options.die_in)
