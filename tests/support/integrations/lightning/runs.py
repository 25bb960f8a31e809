"""Small trainings with all that makes them hard to resume: dropout, shuffling, schedules, validation."""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import lightning.pytorch
import numpy as np
import pytorch_lightning
import torch

import tensorkeep
from tensorkeep.integrations.lightning import TensorkeepCheckpointIO

TIMEOUT_S = 60.0
LIBRARIES: dict[str, ModuleType] = {"lightning": lightning.pytorch, "pytorch_lightning": pytorch_lightning}
N_ROWS, BATCH = 48, 8

torch.set_num_threads(1)  # more only get in each other's way in so small networks

for _library in LIBRARIES.values():
    logging.getLogger(f"{_library.__name__}.utilities.rank_zero").setLevel(logging.ERROR)


def module_class(library: ModuleType = lightning.pytorch) -> Any:
    """Return the class of a module, of either copy of the library."""

    class Regressor(library.LightningModule):
        def __init__(self, width: int = 8, lr: float = 1e-2, **others: Any) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(4, width),
                torch.nn.BatchNorm1d(width),
                torch.nn.Dropout(0.5),
                torch.nn.Linear(width, 1),
            )
            self.losses: list[float] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            inputs, targets = batch
            noise = torch.from_numpy(np.random.randn(len(inputs), 1)).float() / 100
            loss = (self.layers(inputs) - targets - noise).square().mean()
            self.losses.append(loss.item())
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            inputs, targets = batch
            self.log("valid_loss", (self.layers(inputs) - targets).square().mean())

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.validation_step(batch, batch_idx)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=5000)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    return Regressor


Regressor = module_class()


def loader(*, shuffle: bool = True, **options: Any) -> Any:
    made = torch.Generator().manual_seed(1)
    rows = torch.utils.data.TensorDataset(
        torch.randn(N_ROWS, 4, generator=made), torch.randn(N_ROWS, 1, generator=made)
    )
    return torch.utils.data.DataLoader(rows, BATCH, shuffle=shuffle, **options)


class ResumableLoader:
    """Shuffles by itself, and keeps its place."""

    def __init__(self) -> None:
        self._inputs, self._targets = loader().dataset.tensors
        self._random = torch.Generator().manual_seed(2)
        self._begun = self._random.get_state()
        self._place = 0
        self._is_resumed = False

    def __len__(self) -> int:
        return N_ROWS // BATCH

    def __iter__(self) -> Iterator[Any]:
        if not self._is_resumed:
            self._begun, self._place = self._random.get_state(), 0
        self._is_resumed = False
        self._random.set_state(self._begun)
        order = torch.randperm(N_ROWS, generator=self._random).split(BATCH)
        for rows in order[self._place :]:
            self._place += 1
            yield [self._inputs[rows], self._targets[rows]]

    def state_dict(self) -> dict[str, Any]:
        return {"begun": self._begun, "place": self._place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun, self._place, self._is_resumed = state["begun"], state["place"], True


def trainer(directory: Path, library: ModuleType = lightning.pytorch, **options: Any) -> Any:
    warnings.filterwarnings("ignore", module="lightning|pytorch_lightning")
    quiet = {
        "logger": False,
        "accelerator": "cpu",
        "devices": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": directory,
    }
    return library.Trainer(**(quiet | options))


def checkpoints(directory: Path, library: ModuleType = lightning.pytorch, **options: Any) -> Any:
    return library.callbacks.ModelCheckpoint(dirpath=directory, **options)


def fit(directory: Path, plugin: Any = None, *, library: ModuleType = lightning.pytorch, **options: Any) -> Any:
    """Train with validation, and return the trainer."""
    torch.manual_seed(0)
    ckpt_path, module = options.pop("ckpt_path", None), options.pop("module", None)
    callbacks = [*options.pop("callbacks", [checkpoints(directory, library, save_last=True)])]
    made = trainer(
        directory,
        library,
        callbacks=callbacks,
        plugins=[plugin or TensorkeepCheckpointIO()],
        **({"max_epochs": 2} | options),
    )
    made.fit(module or module_class(library)(), loader(), loader(shuffle=False), ckpt_path=ckpt_path)
    return made


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class SlowFile(io.BytesIO):
    """A file whose bytes come when the gate opens: what saves a tensor of it takes as long."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.gate = threading.Event()
        self.gate.set()

    def read(self, size: int | None = -1) -> bytes:
        assert self.gate.wait(TIMEOUT_S)
        return super().read(size)

    def readinto(self, buffer: Any) -> int:
        assert self.gate.wait(TIMEOUT_S)
        return super().readinto(buffer)


class Gate:
    """Holds up the saves of checkpoints with `tensor` in them until it opens."""

    def __init__(self, directory: Path) -> None:
        tensorkeep.save({"slow": torch.arange(1000.0)}, directory / "slow.safetensors")
        self._file = SlowFile((directory / "slow.safetensors").read_bytes())
        (directory / "slow.safetensors").unlink()
        self.tensor = tensorkeep.open(self._file)["slow"]
        self._file.gate.clear()

    def open(self) -> None:
        self._file.gate.set()


def exactly(one: Any, other: Any) -> bool:
    """Say whether two nested values are the same, types and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and one.equal(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(exactly(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(exactly, one, other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other or (one != one and other != other))
