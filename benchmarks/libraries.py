"""Loading whole files into array libraries: ours against safetensors' module of the same name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import ml_dtypes  # noqa: F401 - safetensors.mlx reads bfloat16 only once NumPy knows it
import numpy as np

from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.arrays.elements import aligned_block

__all__ = ["CASES"]

_TARGETS = {"flax": 4.0, "tensorflow": 2.0, "mlx": 2.0, "paddle": 2.0}
"""Each library to how many times as fast as safetensors' module ours is to be."""


def _many(place: Place) -> Path:
    return _warm(inputs.tensor_file(place.folder, "F32", (16, 32), place.size(20_000, 200)))


def _large(place: Place, align: int = 8) -> Path:
    shape = 2048, place.size(3040, 32)
    return _warm(inputs.tensor_file(place.folder, "BF16", shape, place.size(201, 11), align=align))


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


@cache
def _over_memory(library: str) -> Callable[[np.ndarray[Any, Any]], Any]:
    """Return the least that makes a tensor of a library over the memory of an array, or of a copy."""
    if library == "flax":
        jax, jaxlib, core = map(importlib.import_module, ("jax", "jaxlib._jax", "jax._src.core"))
        device = jax.devices("cpu")[0]
        sharding = jax.sharding.SingleDeviceSharding(device)
        described = core.ShapedArray((16, 32), np.dtype("float32"))
        return lambda array: jaxlib.batched_device_put(described, sharding, [array], [device], False)
    if library == "tensorflow":
        from_dlpack = importlib.import_module("tensorflow").experimental.dlpack.from_dlpack
        return lambda array: from_dlpack(array.__dlpack__())
    if library == "mlx":
        return cast(Callable[[Any], Any], importlib.import_module("mlx.core").array)
    paddle = importlib.import_module("paddle")
    return lambda array: paddle.utils.dlpack.from_dlpack(array.__dlpack__())


def _empty(library: str) -> Contender:
    def make(_: Path) -> Any:
        block = aligned_block(2048, 64)
        make, array = _over_memory(library), np.ndarray((16, 32), np.float32, block.data)
        return [make(array) for _ in range(20_000)]

    return limits.without_collector(f"as many tensors of {library}", make)


_MEMCPY = Contender("memcpy by 2 threads", lambda path: limits.copy_by_two_threads(_mapped(path)))


@cache
def _mapped(path: Path) -> limits.Bytes:
    return limits.mapped_pages(path)


def _case(library: str, what: str, title: str, prepare: Callable[[Place], Path], **more: Any) -> Case:
    return Case(
        name=f"libraries/{library}-{what}",
        title=f"`{library}.load_file`, {title}",
        prepare=prepare,
        ours=_loading("tensorkeep", library),
        peers=(_loading("safetensors", library),),
        target=AtLeast(_TARGETS[library]),
        company=library,
        **more,
    )


def _aligned(library: str) -> Case:
    """Declare loading a file saved with `align=64`, of which nothing is copied."""

    def import_and_try(path: Path) -> None:  # before memory is measured
        tiny = inputs.tensor_file(path.parent, "BF16", (32,), 1)
        for package in ("tensorkeep", "safetensors"):
            _loading(package, library).run(tiny)

    return _case(
        library,
        "aligned",
        "the same, saved with `align=64`",
        lambda place: _large(place, align=64),
        rounds=5,
        before=import_and_try,
        max_extra_nbytes=50_000_000,
        remark="Nothing is copied: the tensors share the memory of the mapped file.",
    )


CASES = tuple(
    case
    for library in _TARGETS
    for case in (
        _case(library, "small", "20,000 F32 tensors of 2 kB", _many, rounds=9, limits=(_empty(library),)),
        _case(
            library,
            "large",
            "2.5 GB in 201 BF16 tensors, warm",
            _large,
            rounds=5,
            limits=() if library == "paddle" else (_MEMCPY,),
        ),
        *([_aligned(library)] if library in {"flax", "tensorflow"} else []),
    )
)
