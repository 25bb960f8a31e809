"""Loading whole files into array libraries: ours against safetensors' module of the same name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - safetensors.mlx reads bfloat16 only once NumPy knows it

from benchmarks import inputs
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]

_TARGETS = {"flax": 4.0, "tensorflow": 2.0, "mlx": 2.0, "paddle": 2.0}
"""Each library to how many times as fast as safetensors' module ours is to be."""


def _many(place: Place) -> Path:
    return _warm(inputs.tensor_file(place.folder, "F32", (16, 32), place.size(20_000, 200)))


def _large(place: Place) -> Path:
    return _warm(inputs.tensor_file(place.folder, "BF16", (2048, place.size(3040, 32)), place.size(201, 11)))


def _warm(path: Path) -> Path:
    inputs.read_into_cache(path)
    return path


def _loading(package: str, library: str) -> Contender:
    @cache
    def load_file() -> Callable[[Path], dict[str, Any]]:
        loader: Callable[[Path], dict[str, Any]] = importlib.import_module(f"{package}.{library}").load_file
        return loader

    def run(path: Path) -> Any:
        tensors = load_file()(path)
        if library == "mlx":  # computes when it must
            importlib.import_module("mlx.core").eval(tensors)
        return tensors

    return Contender(package, run)


def _case(library: str, what: str, title: str, prepare: Callable[[Place], Path], rounds: int) -> Case:
    return Case(
        name=f"libraries/{library}-{what}",
        title=f"`{library}.load_file`, {title}",
        prepare=prepare,
        ours=_loading("tensorkeep", library),
        peers=(_loading("safetensors", library),),
        target=AtLeast(_TARGETS[library]),
        rounds=rounds,
        company=library,
    )


CASES = tuple(
    case
    for library in _TARGETS
    for case in (
        _case(library, "small", "20,000 F32 tensors of 2 kB", _many, 9),
        _case(library, "large", "2.5 GB in 201 BF16 tensors, warm", _large, 5),
    )
)
