"""PyTorch files: open, load, convert. Nothing in them is run; torch needs `weights_only` for that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]


class _Pickled:
    """A file of `torch.save`, in the page cache, and where to convert it to."""

    def __init__(self, path: Path) -> None:
        self.path = inputs.pt_copy(path)
        self.target = path.with_name("converted")
        inputs.read_into_cache(self.path)

    @property
    def file(self) -> Path:
        """The converted file."""
        return self.target / "model.safetensors"


def _many(place: Place) -> _Pickled:
    """Declare 80,000 tensors of 2 kB."""
    return _Pickled(inputs.tensor_file(place.folder, "F32", (16, 32), place.size(80_000, 200)))


def _large(where: Callable[[Place], Path]) -> Callable[[Place], _Pickled]:
    """Declare 2.5 GB in 201 tensors, in a directory."""

    def prepare(place: Place) -> _Pickled:
        return _Pickled(inputs.tensor_file(where(place), "BF16", (2048, place.size(3040, 32)), place.size(201, 11)))

    return prepare


def _open(source: _Pickled) -> Any:
    tensors = tensorkeep.open(source.path, framework="torch")
    return tensors, list(tensors)


def _load(source: _Pickled) -> Any:
    return tensorkeep.load(source.path, framework="torch")


def _load_by_torch(source: _Pickled, **options: Any) -> Any:
    return torch.load(source.path, weights_only=True, **options)


def _convert(source: _Pickled, **options: Any) -> None:
    tensorkeep.convert(source.path, source.target, durable=False, **options)


def _convert_by_torch(source: _Pickled, **options: Any) -> None:
    source.target.mkdir()
    safetensors.torch.save_file(_load_by_torch(source, **options), source.file)


def _cp(source: _Pickled) -> None:
    source.target.mkdir()
    limits.copy_of_file(source.path, source.file)


def _remove(source: _Pickled) -> None:
    if source.target.exists():
        shutil.rmtree(source.target)


_TORCH = Contender("torch.load(weights_only=True)", _load_by_torch)
_TORCH_MAPPED = Contender("the same with mmap=True", lambda source: _load_by_torch(source, mmap=True))
_CONVERTERS = (
    Contender("torch.load(weights_only=True) and save_file", _convert_by_torch),
    Contender("the same with mmap=True", lambda source: _convert_by_torch(source, mmap=True)),
)
_UNCHECKED = Contender("tensorkeep", lambda source: _convert(source, check=False))
_COPY = (Contender("cp", _cp),)

CASES = (
    Case(
        name="pickles/open-many",
        title="`open` a `torch.save` file, 80,000 F32 tensors of 2 kB, and list it",
        prepare=_many,
        ours=Contender("tensorkeep", _open),
        peers=(_TORCH_MAPPED,),
        target=AtLeast(2.0),
        rounds=7,
        remark="torch creates all tensors; it has no lazy ones. tensorkeep also checks every archive member against "
        "the directory.",
    ),
    Case(
        name="pickles/load-many",
        title="`load` the same into torch",
        prepare=_many,
        ours=Contender("tensorkeep", _load),
        peers=(_TORCH, _TORCH_MAPPED),
        target=AtLeast(1.0),
        rounds=7,
    ),
    Case(
        name="pickles/load-large",
        title="`load` a `torch.save` file, 2.5 GB in 201 BF16 tensors, warm, into torch",
        prepare=_large(lambda place: place.folder),
        ours=Contender("tensorkeep", _load),
        peers=(_TORCH_MAPPED, _TORCH),
        rounds=7,
    ),
    Case(
        name="pickles/convert",
        title="`convert` the same to safetensors, `check=False`",
        prepare=_large(lambda place: place.folder),
        before=_remove,
        after=_remove,
        ours=_UNCHECKED,
        peers=_CONVERTERS,
        limits=_COPY,
        target=AtLeast(2.0),
        max_extra_nbytes=100_000_000,
        rounds=7,
        remark="tensorkeep computes a BLAKE3 digest of every tensor on the way; the peers compute none. Nothing "
        "waits for the disk.",
    ),
    Case(
        name="pickles/convert-tmpfs",
        title="the same in memory (tmpfs)",
        prepare=_large(lambda place: place.tmpfs),
        before=_remove,
        after=_remove,
        ours=_UNCHECKED,
        peers=_CONVERTERS,
        limits=_COPY,
        target=AtLeast(2.0),
        rounds=7,
    ),
    Case(
        name="pickles/convert-checked",
        title="the same on disk, with the checks that `convert` makes by default",
        prepare=_large(lambda place: place.folder),
        before=_remove,
        after=_remove,
        ours=Contender("tensorkeep", _convert),
        peers=_CONVERTERS,
        limits=_COPY,
        rounds=5,
        remark="The source is checked against its archive's CRC-32, and everything written is read back. The peers "
        "do neither.",
    ),
)
