"""Saving in the background: how long training stops, and how much it slows down until everything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

import tensorkeep
from benchmarks import inputs
from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.checkpoint.saving._save_async import save_async

__all__ = ["CASES"]

_N_STEPS = 400


class _Run:
    """A state in memory, and the training that runs meanwhile."""

    def __init__(self, source: Path, target: Path, *, durable: bool, n_steps: int) -> None:
        self.target = target
        self.durable = durable
        self.n_steps = n_steps
        self.tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(source).items()}
        self.copies = [tensor.clone() for tensor in self.tensors.values()]
        self.inputs = torch.ones(512, 512)
        self.handle = save_async(self.tensors, target, durable=durable)  # memory is fresh only once per process

    def save(self) -> None:
        tensorkeep.save(self.tensors, self.target, durable=self.durable)

    def save_async(self) -> None:
        self.handle = save_async(self.tensors, self.target, durable=self.durable)

    def train(self) -> None:
        for _ in range(self.n_steps):
            torch.mm(self.inputs, self.inputs)

    def copy(self) -> None:
        for copy, tensor in zip(self.copies, self.tensors.values(), strict=True):
            copy.copy_(tensor)


def _to(where: Callable[[Place], Path], *, durable: bool) -> Callable[[Place], _Run]:
    """Declare 1.0 GB in 80 tensors, on their way to a directory."""

    def prepare(place: Place) -> _Run:
        source = inputs.tensor_file(place.folder, "F32", (1024, place.size(3142, 32)), place.size(80, 8))
        target = where(place) / "background.safetensors"
        return _Run(source, target, durable=durable, n_steps=place.size(_N_STEPS, 4))

    return prepare


def _finish(run: _Run) -> None:
    run.handle.result()


def _in_a_row(save: Callable[[_Run], None]) -> Callable[[_Run], None]:
    """Declare a save that starts along with some training, until both are done."""

    def run_both(run: _Run) -> None:
        save(run)
        run.train()
        run.handle.result()

    return run_both


_BLOCKING = Contender("save", _Run.save)
_COPY = Contender("the same copied into memory by torch", _Run.copy)

CASES = (
    Case(
        name="background/durable",
        title="until `save_async` returns, 1.0 GB in 80 F32 tensors, over an older file, with fsync",
        prepare=_to(lambda place: place.folder, durable=True),
        before=_finish,
        ours=Contender("save_async", _Run.save_async),
        peers=(_BLOCKING,),
        limits=(_COPY,),
        after=_finish,
        target=AtLeast(2.86),
        rounds=9,
        has_memory=False,
        remark="This is the time training loses: the copy, in memory an earlier save has used. A process's first "
        "save takes longer, because the system has to provide that memory: as much as the tensors take in the "
        "file.",
    ),
    Case(
        name="background/cached",
        title="the same to the page cache, without fsync",
        prepare=_to(lambda place: place.folder, durable=False),
        before=_finish,
        ours=Contender("save_async", _Run.save_async),
        peers=(_BLOCKING,),
        limits=(_COPY,),
        after=_finish,
        target=AtLeast(2.86),
        rounds=9,
        has_memory=False,
    ),
    Case(
        name="background/training",
        title=f"a save of 1.0 GB to the disk and {_N_STEPS} products of 512 x 512 matrices, until all is done",
        prepare=_to(lambda place: place.folder, durable=True),
        before=_finish,
        ours=Contender("save_async", _in_a_row(_Run.save_async)),
        peers=(Contender("save", _in_a_row(_Run.save)),),
        limits=(Contender("the products alone", _Run.train),),
        after=_finish,
        rounds=7,
        has_memory=False,
    ),
)
