"""Steps of a run, with most tensors unchanged since the previous step."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import torch

import tensorkeep
from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.store import CheckpointStore
from tensorkeep.transport.system import finish_freeing

__all__ = ["CASES"]

_N_LAYERS = 32


class _Run:
    """A fine-tune in memory: large frozen matrices between small trained ones, and the state of their optimizer.

    Nine tenths of the bytes are frozen.
    """

    def __init__(self, place: Place, *, durable: bool) -> None:
        self.folder = place.folder / f"run-{'durable' if durable else 'fast'}"
        self.durable = durable
        self.steps = itertools.count(1)
        n_frozen, n_trained = place.size(14_000_000, 140_000), place.size(128_000, 1_280)
        self.model: dict[str, torch.Tensor] = {}
        for n in range(_N_LAYERS):
            self.model[f"layers.{n}.weight"] = torch.full((n_frozen,), n, dtype=torch.bfloat16)
            for side in "AB":
                self.model[f"layers.{n}.lora_{side}"] = torch.zeros(n_trained)
        trained = [name for name in self.model if "lora" in name]
        self.moments = {
            n: {"step": torch.tensor(0.0), "exp_avg": torch.zeros(n_trained), "exp_avg_sq": torch.zeros(n_trained)}
            for n in range(len(trained))
        }

    @property
    def state(self) -> dict[str, Any]:
        """The state to save."""
        return {"model": self.model, "optimizer": {"state": self.moments, "param_groups": [{"lr": 1e-3}]}}

    @property
    def store(self) -> CheckpointStore:
        """The store; it keeps one step besides the newest."""
        return CheckpointStore(self.folder / "store", keep_last=2, keep_best=0, durable=self.durable)

    def train(self) -> None:
        """Change all trained tensors."""
        for name, tensor in self.model.items():
            if "lora" in name:
                tensor.add_(1)
        for moments in self.moments.values():
            for tensor in moments.values():
                tensor.add_(1)


def _before(run: _Run) -> None:
    """Leave one step in the store and nothing elsewhere, and train one step."""
    run.folder.mkdir(exist_ok=True)
    shutil.rmtree(run.folder / "whole", ignore_errors=True)
    if not run.store.steps():
        run.store.save(next(run.steps), run.state)
    run.train()


def _save_whole(run: _Run) -> None:
    tensorkeep.save_checkpoint(run.state, run.folder / "whole", max_shard_size="512MB", durable=run.durable)


def _save_by_torch(run: _Run) -> None:
    torch.save(run.state, run.folder / "whole.pt")


def _case(name: str, title: str, *, durable: bool, remark: str = "") -> Case:
    return Case(
        name=name,
        title=title,
        prepare=lambda place: _Run(place, durable=durable),
        before=_before,
        after=lambda _: finish_freeing(),
        ours=Contender("tensorkeep", lambda run: run.store.save(next(run.steps), run.state)),
        peers=(Contender("tensorkeep.save_checkpoint", _save_whole), Contender("torch.save", _save_by_torch)),
        target=AtLeast(2.0),
        rounds=7,
        remark=remark,
    )


CASES = (
    _case(
        "store/next-step",
        "`CheckpointStore.save`, 1 GB, nine tenths unchanged since the previous step",
        durable=False,
        remark="Unchanged tensors become a hard link to the previous step's file and take no space. Most of the "
        "time goes into comparing and hashing every byte, to know that the tensors did not change and the older "
        "file is intact. The peers write everything. tensorkeep's time includes removing an older step.",
    ),
    _case("store/next-step-durable", "the same, with fsync", durable=True),
)
