"""Train a small network on scikit-learn's digits with accelerate. Stopped at any batch, it resumes with the next.

    python examples/accelerate_digits.py run
    python examples/accelerate_digits.py run --stop-after 100    # stops as if killed after 100 batches

Started again, it ends with the same weights, to the last bit, as an uninterrupted run. All it takes is the import of
`Accelerator`.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensorkeep.integrations.accelerate import Accelerator

N_EPOCHS = 4
BATCH_SIZE = 32
SAVE_EVERY = 20


class Progress:
    """How many batches were used. Registered for checkpointing, so it is saved with everything else."""

    def __init__(self) -> None:
        self.n_batches = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save."""
        return {"n_batches": self.n_batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.n_batches = state["n_batches"]


def main(directory: str, stop_after: int | None) -> None:
    """Train to the end, from the newest intact checkpoint.

    Args:
        directory: Where to keep checkpoints.
        stop_after: Batches after which to end without a word, as a program does that is killed.
    """
    torch.set_num_threads(1)  # more are slower for so small a network
    accelerator = Accelerator(
        cpu=True,
        project_config=ProjectConfiguration(directory, automatic_checkpoint_naming=True, total_limit=2),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    set_seed(0)
    digits = load_digits()
    images, labels = torch.from_numpy(digits.data / 16).float(), torch.from_numpy(digits.target)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH_SIZE, shuffle=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_EPOCHS * len(loader))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if os.path.isdir(os.path.join(directory, "checkpoints")):
        accelerator.load_state()

    first_epoch, n_used = divmod(progress.n_batches, len(loader))
    for epoch in range(first_epoch, N_EPOCHS):
        rest = accelerator.skip_first_batches(loader, n_used) if epoch == first_epoch else loader
        for inputs, targets in rest:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            progress.n_batches += 1
            if progress.n_batches % SAVE_EVERY == 0:
                accelerator.save_state()
            if progress.n_batches == stop_after:
                os._exit(1)
        print(f"epoch {epoch}: loss {loss.item():.6f}", flush=True)
    accelerator.save_model(model, os.path.join(directory, "model"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="where to keep checkpoints")
    parser.add_argument("--stop-after", type=int, metavar="BATCHES", help="end without a word after so many batches")
    arguments = parser.parse_args()
    main(arguments.directory, arguments.stop_after)
