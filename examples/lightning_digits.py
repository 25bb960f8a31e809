"""Train on scikit-learn's digits with Lightning. Stopped or killed at any time, it resumes from the last save.

    python examples/lightning_digits.py checkpoints
    python examples/lightning_digits.py checkpoints --stop-after 3    # stops as if killed then

Started again, it ends with the same weights, to the last bit, as an uninterrupted run. All it takes is the Trainer's
plugin and callback; the rest is an ordinary Lightning module.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, RandomState, load_from_checkpoint

N_EPOCHS = 6
N_VALID = 360


class Classifier(LightningModule):  # type: ignore[misc]
    """A network of 38,000 parameters with dropout.

    Args:
        width: Numbers in its hidden layer.
        lr: The largest learning rate.
    """

    def __init__(self, width: int = 512, lr: float = 0.005) -> None:  # noqa: ARG002 - it is kept in hparams
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch: images of shape (batch, 64), and their labels."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        """Log the accuracy."""
        images, labels = batch
        self.log("accuracy", (self.layers(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and a schedule that changes the learning rate at every step."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.lr, total_steps=int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def load_images() -> tuple[Dataset[Any], Dataset[Any]]:
    """Return the training and validation data, the same in every run."""
    digits = load_digits()
    images = TensorDataset(torch.from_numpy(digits.data / 16).float(), torch.from_numpy(digits.target))
    parts = random_split(images, [len(images) - N_VALID, N_VALID], torch.Generator().manual_seed(0))
    return parts[0], parts[1]


def train(directory: Path, stop_after: int) -> None:
    """Train to the end, from the last saved epoch.

    Args:
        directory: Where to keep checkpoints.
        stop_after: The epoch after which this process stops, whatever is left to do.
    """
    for library in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(library).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    seed_everything(0, verbose=False)
    trained_on, others = load_images()
    best = ModelCheckpoint(dirpath=directory, monitor="accuracy", mode="max", save_last=True)
    trainer = Trainer(
        max_epochs=N_EPOCHS,
        plugins=[AsyncTensorkeepCheckpointIO()],  # checkpoints are complete, verified, and written in the background
        callbacks=[best, RandomState(), StopAfter(stop_after)],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    validation = DataLoader(others, batch_size=N_VALID)
    trainer.fit(Classifier(), DataLoader(trained_on, 64, shuffle=True), validation, ckpt_path="last")
    print(f"epochs done: {trainer.current_epoch} of {N_EPOCHS}")

    model = load_from_checkpoint(Classifier, best.best_model_path)
    accuracy = trainer.validate(model, validation, verbose=False)[0]["accuracy"]
    print(f"the best checkpoint recognizes {100 * accuracy:.1f} % of the held-out images")


class StopAfter(Callback):  # type: ignore[misc]
    """Stops a run early.

    Args:
        epoch: The last one, counted from 1.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_end(self, trainer: Trainer, _: LightningModule) -> None:
        """Stop after the given epoch."""
        trainer.should_stop = trainer.current_epoch + 1 >= self.epoch


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where to keep checkpoints")
    parser.add_argument("--stop-after", type=int, default=N_EPOCHS, metavar="EPOCH", help="stop after that epoch")
    arguments = parser.parse_args()
    train(arguments.directory, arguments.stop_after)
