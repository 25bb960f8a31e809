"""Models computed from others: an average of three, and an adapter added."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import peft
import safetensors.torch
import torch
from torch import nn

import tensorkeep
from benchmarks import inputs
from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.merging import add_lora, average
from tensorkeep.transport.system import finish_freeing

__all__ = ["CASES"]

_WIDTH = 4096
_N_LAYERS = 75
_RANK = 16
_BUFFER_NBYTES = 2**23


class _Models:
    """Three files of BF16 matrices, a LoRA adapter of the first, and where results go."""

    def __init__(self, place: Place) -> None:
        width, self.n_layers = place.size(_WIDTH, 64), place.size(_N_LAYERS, 3)
        self.shape = (width, width)
        self.target = place.folder / "merged"
        self.files = [_copied(place.folder, self.shape, self.n_layers, number) for number in range(3)]
        self.adapter = place.folder / f"adapter-{width}-{self.n_layers}"
        if not self.adapter.exists():
            self._write_adapter()

    @cached_property
    def module(self) -> Any:
        """A model of these layers, without numbers."""
        with torch.device("meta"):
            layers = {name: nn.Linear(*self.shape, bias=False, dtype=torch.bfloat16) for name in self._names}
            return nn.ModuleDict(layers)

    @property
    def _names(self) -> list[str]:
        return [name.removesuffix(".weight") for name in tensorkeep.open(self.files[0])]

    def _write_adapter(self) -> None:
        random = np.random.default_rng(0)
        tensors = {}
        for name in self._names:
            for end, shape in (("A", (_RANK, self.shape[1])), ("B", (self.shape[0], _RANK))):
                factor = random.standard_normal(shape, np.float32) * np.float32(0.01)
                tensors[f"base_model.model.{name}.lora_{end}.weight"] = factor
        self.adapter.mkdir()
        tensorkeep.save(tensors, self.adapter / "adapter_model.safetensors")
        settings = {"peft_type": "LORA", "r": _RANK, "lora_alpha": 32, "target_modules": self._names}
        (self.adapter / "adapter_config.json").write_text(json.dumps(settings))


def _copied(folder: Path, shape: tuple[int, int], n_layers: int, number: int) -> Path:
    path = folder / f"model-{shape[0]}-{n_layers}-{number}.safetensors"
    if not path.exists():
        names = [f"layer{place}.weight" for place in range(n_layers)]
        random = np.random.default_rng(number)
        with tensorkeep.writing(folder / "made", dict.fromkeys(names, ("bf16", shape)), durable=False) as writer:
            for name in names:
                numbers = random.standard_normal(shape, np.float32)
                writer[name] = torch.from_numpy(numbers).bfloat16()
        (folder / "made" / "model.safetensors").rename(path)
    return path


def _average(models: _Models) -> None:
    tensorkeep.save_checkpoint(average(*map(tensorkeep.open, models.files)), models.target)


def _average_by_torch(models: _Models) -> None:
    """What mergekit's `linear` computes, in its order: each tensor of all models in memory, then a file of all."""
    merged = {}
    files = [safetensors.safe_open(path, "pt") for path in models.files]
    for name in tensorkeep.open(models.files[0]):
        stacked = torch.stack([file.get_tensor(name) for file in files])
        weights = torch.ones(3, 1, 1, dtype=stacked.dtype)
        merged[name] = (weights * stacked).sum(0) / weights.sum(0)
    _write_durably(merged, models.target)


def _add_lora(models: _Models) -> None:
    base, adapter = tensorkeep.open(models.files[0]), tensorkeep.open(models.adapter)
    tensorkeep.save_checkpoint(add_lora(base, adapter), models.target)


def _add_lora_by_peft(models: _Models) -> None:
    module = models.module
    module.load_state_dict(safetensors.torch.load_file(models.files[0]), assign=True)
    merged = peft.PeftModel.from_pretrained(module, str(models.adapter)).merge_and_unload()
    _write_durably(merged.state_dict(), models.target)
    del models.__dict__["module"]


def _write_durably(tensors: dict[str, torch.Tensor], target: Path) -> None:
    target.mkdir(exist_ok=True)
    path = target / "model.safetensors"
    safetensors.torch.save_file(tensors, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _read_and_write(models: _Models, n_read: int) -> None:
    """Read some files by two threads, write as many bytes as one has, and sync."""
    with ThreadPoolExecutor(2) as readers:
        list(readers.map(_read, models.files[:n_read]))
    models.target.mkdir(exist_ok=True)
    buffer = bytearray(_BUFFER_NBYTES)
    with (models.target / "model.safetensors").open("wb", buffering=0) as file:
        for _ in range(models.files[0].stat().st_size // _BUFFER_NBYTES + 1):
            file.write(buffer)
        os.fsync(file.fileno())


def _read(path: Path) -> None:
    buffer = bytearray(_BUFFER_NBYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _warm(models: _Models) -> None:
    shutil.rmtree(models.target, ignore_errors=True)
    finish_freeing()
    for path in models.files:
        inputs.read_into_cache(path)


CASES: tuple[Case, ...] = (
    Case(
        name="merging/average",
        title="`merging.average` of three models of 2.5 GB in BF16, saved with digests and fsync",
        prepare=_Models,
        ours=Contender("tensorkeep", _average),
        peers=(
            Contender("reading three and writing one", lambda models: _read_and_write(models, 3)),
            Contender("safetensors and torch, by mergekit's formula", _average_by_torch),
        ),
        target=AtLeast(0.7),
        max_extra_nbytes=300_000_000,
        before=_warm,
        rounds=5,
        remark="mergekit itself computes each tensor in the same way.",
    ),
    Case(
        name="merging/lora",
        title="`merging.add_lora` of rank 16 into 2.5 GB in BF16, saved with digests and fsync",
        prepare=_Models,
        ours=Contender("tensorkeep", _add_lora),
        peers=(
            Contender("reading one and writing one", lambda models: _read_and_write(models, 1)),
            Contender("peft: merge_and_unload, safetensors", _add_lora_by_peft),
        ),
        target=AtLeast(0.7),
        max_extra_nbytes=300_000_000,
        before=_warm,
        rounds=5,
    ),
)
