"""The whole state of a training run, saved and loaded through training libraries: their way and ours."""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

import torch
from torch import nn

from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]

_WIDTH = 2048


class _Model(nn.Module):
    """100 million parameters: 24 square matrices."""

    def __init__(self, n_layers: int = 24, width: int = _WIDTH) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))

    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:  # noqa: ARG002 - transformers' Trainer gives labels
        """Return one number per row."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.sum(dim=1)


def _stepped(parameters: Iterator[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """Take one step, so that the optimizer has its full state."""
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    optimizer.zero_grad()


@contextmanager
def _silence() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class _Skorch:
    """A net of skorch with AdamW."""

    def __init__(self, place: Place) -> None:
        from skorch import NeuralNet

        from tensorkeep.integrations import skorch as ours

        self.folder = place.folder / "skorch"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.net = NeuralNet(
            _Model,
            criterion=nn.MSELoss,
            optimizer=torch.optim.AdamW,
            module__width=place.size(_WIDTH, 32),
            verbose=0,
        ).initialize()
        _stepped(self.net.module_.parameters(), self.net.optimizer_)
        self.ours = ours
        self.ours_paths = {"f_params": self.folder / "ours-params", "f_optimizer": self.folder / "ours-optimizer"}
        self.theirs_paths = {"f_params": self.folder / "params.pt", "f_optimizer": self.folder / "optimizer.pt"}

    def save(self) -> None:
        self.ours.save_params(self.net, **self.ours_paths, durable=False)

    def save_theirs(self) -> None:
        self.net.save_params(**self.theirs_paths)

    def load(self) -> None:
        self.ours.load_params(self.net, **self.ours_paths)

    def load_theirs(self) -> None:
        self.net.load_params(**self.theirs_paths)


class _Lightning:
    """A checkpoint of Lightning's Trainer, and the plugins that save and load it."""

    def __init__(self, place: Place) -> None:
        with _silence():
            from lightning.pytorch.plugins.io import TorchCheckpointIO

            from tensorkeep.integrations.lightning import TensorkeepCheckpointIO
        self.folder = place.folder / "lightning"
        self.folder.mkdir(parents=True, exist_ok=True)
        model = _Model(width=place.size(_WIDTH, 32))
        optimizer = torch.optim.AdamW(model.parameters())
        _stepped(model.parameters(), optimizer)
        self.checkpoint = {
            "epoch": 3,
            "global_step": 500,
            "pytorch-lightning_version": "2.6.6",
            "state_dict": model.state_dict(),
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [],
            "loops": {},
            "callbacks": {},
        }
        self.ours, self.theirs = TensorkeepCheckpointIO(durable=False), TorchCheckpointIO()

    def save(self) -> None:
        self.ours.save_checkpoint(self.checkpoint, self.folder / "ours.ckpt")

    def save_theirs(self) -> None:
        self.theirs.save_checkpoint(self.checkpoint, self.folder / "theirs.ckpt")

    def load(self) -> None:
        self.ours.load_checkpoint(self.folder / "ours.ckpt")

    def load_theirs(self) -> None:
        self.theirs.load_checkpoint(self.folder / "theirs.ckpt", weights_only=True)


class _Transformers:
    """The two Trainers, each with its own model and AdamW."""

    def __init__(self, place: Place) -> None:
        with _silence():
            import transformers

            from tensorkeep.integrations import transformers as ours
        self.folder = place.folder / "transformers"
        self.trainers: dict[str, Any] = {}
        for name, cls in (("ours", ours.Trainer), ("theirs", transformers.Trainer)):
            arguments = transformers.TrainingArguments(
                output_dir=str(self.folder / name), report_to=[], disable_tqdm=True, use_cpu=True, save_total_limit=1
            )
            model = _bert(transformers, place)
            with _silence():
                trainer = cls(model=model, args=arguments)
                trainer.create_optimizer_and_scheduler(num_training_steps=10)
            _stepped(model.parameters(), trainer.optimizer)
            self.trainers[name] = trainer

    def _save(self, name: str) -> None:
        trainer = self.trainers[name]
        with _silence():
            trainer._save_checkpoint(trainer.model, trial=None)

    def save(self) -> None:
        self._save("ours")

    def save_theirs(self) -> None:
        self._save("theirs")

    def _load(self, name: str) -> None:
        trainer = self.trainers[name]
        checkpoint = str(self.folder / name / "checkpoint-0")
        with _silence():
            trainer._load_from_checkpoint(checkpoint)
            trainer._load_optimizer_and_scheduler(checkpoint)
            trainer._load_rng_state(checkpoint)

    def load(self) -> None:
        self._load("ours")

    def load_theirs(self) -> None:
        self._load("theirs")


def _bert(transformers: Any, place: Place) -> Any:
    """Create a BERT of 100 million parameters."""
    width = place.size(768, 32)
    config = transformers.BertConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=place.size(11, 2),
        num_attention_heads=4,
        vocab_size=place.size(28_000, 100),
    )
    return transformers.BertForSequenceClassification(config)


def _saved_once(run: Any) -> None:
    """Save what will be loaded."""
    if not getattr(run, "is_saved", False):
        run.save()
        run.save_theirs()
        run.is_saved = True


def _removed(run: Any) -> None:
    """Empty the directory before a save."""
    for path in run.folder.iterdir() if run.folder.exists() else ():
        with suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run.is_saved = False


def _pair(name: str, prepare: Callable[[Place], Any], what: str, their_name: str) -> tuple[Case, Case]:
    save = Case(
        name=f"trainers/{name}-save",
        title=f"{what}, saved: 100 million parameters and AdamW, 1.2 GB",
        prepare=prepare,
        before=_removed,
        ours=Contender("tensorkeep", lambda run: run.save()),
        peers=(Contender(their_name, lambda run: run.save_theirs()),),
        target=AtLeast(1.0),
        rounds=5,
        remark="tensorkeep computes a digest of every tensor. Like the libraries, it does not wait for the disk "
        "here.",
    )
    load = Case(
        name=f"trainers/{name}-load",
        title=f"{what}, loaded again",
        prepare=prepare,
        before=_saved_once,
        ours=Contender("tensorkeep", lambda run: run.load()),
        peers=(Contender(their_name, lambda run: run.load_theirs()),),
        target=AtLeast(1.0),
        rounds=5,
        remark="tensorkeep checks every byte against its digest first.",
    )
    return save, load


CASES = (
    *_pair("skorch", _Skorch, "skorch, module and optimizer", "skorch"),
    *_pair("lightning", _Lightning, "a checkpoint of Lightning's Trainer", "Lightning"),
    *_pair("transformers", _Transformers, "`checkpoint-500` of transformers' Trainer", "transformers"),
)
