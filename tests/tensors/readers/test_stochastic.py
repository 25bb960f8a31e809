"""Stochastic rounding: without bias, the same for every part that is read, and exact where it can be."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorkeep
from tensorkeep.cli import main

TARGETS = ["bf16", "f16", "f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"]
ML_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "f8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


@pytest.fixture
def numbers() -> NDArray[np.float32]:
    random = np.random.default_rng(0)
    wide = random.standard_normal((37, 1001)) * np.exp(random.uniform(-25, 6, (37, 1001)))
    return wide.astype(np.float32)


def lazy_of(path: Path, array: NDArray[np.generic]) -> tensorkeep.LazyTensor:
    tensorkeep.save({"w": array}, path / "w.safetensors")
    return tensorkeep.open(path / "w.safetensors", framework="numpy")["w"]


def raw(array: NDArray[np.generic]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wide", [np.float32, np.float64, np.float16])
def test_every_part_has_the_numbers_of_the_whole(
    tmp_path: Path, numbers: NDArray[np.float32], target: str, wide: type
) -> None:
    with np.errstate(over="ignore"):
        lazy = lazy_of(tmp_path, numbers.astype(wide)).cast(target, seed=5)
    whole = lazy.load()

    for index in (np.s_[3:30:4, ::7], np.s_[:, 11], np.s_[[9, 2, 2], ::-1], np.s_[..., 5:5], np.s_[36]):
        assert raw(lazy[index]) == raw(whole[index])
    view = tensorkeep.TensorView({"other": lazy}, path="view")
    tensorkeep.save(view, tmp_path / "saved.safetensors")
    assert raw(tensorkeep.load(tmp_path / "saved.safetensors", framework="numpy")["other"]) == raw(whole)


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_become_a_neighbor(tmp_path: Path, numbers: NDArray[np.float32], target: str) -> None:
    rounded = lazy_of(tmp_path, numbers).cast(target, seed=1).load().astype(np.float64).reshape(-1)
    dtype = ML_DTYPES[target]
    width = np.dtype(dtype).itemsize
    every = np.arange(2 ** (8 * width), dtype=f"u{width}").view(dtype)
    grid = np.unique(every[np.isfinite(every)].astype(np.float64))
    exact = numbers.astype(np.float64).reshape(-1)
    within = np.abs(exact) <= grid[-1]

    after = np.searchsorted(grid, exact[within], side="left")
    is_exact = grid[after] == exact[within]
    before = np.where(is_exact, after, after - 1)
    assert np.all((rounded[within] == grid[after]) | (rounded[within] == grid[before]))


@pytest.mark.parametrize("target", TARGETS)
def test_the_mean_is_right(tmp_path: Path, target: str) -> None:
    smallest = float(ml_dtypes.finfo(ML_DTYPES[target]).smallest_subnormal)
    values = np.array([1.001, 3.14159, -0.77, 100.3, 0.3 * smallest, 2.6 * smallest], np.float32)
    n = 100_000
    rounded = lazy_of(tmp_path, np.repeat(values[:, None], n, 1)).cast(target, seed=7).load().astype(np.float64)

    error = np.abs(rounded.mean(1) - values.astype(np.float64))
    assert np.all(error <= 4.5 * rounded.std(1) / np.sqrt(n))
    assert [len(np.unique(row)) for row in rounded] == [2] * len(values)
    halves = rounded[0, ::2] == rounded[0, 1::2]
    share = np.mean(rounded[0] == rounded[0].min())
    assert abs(halves.mean() - (share**2 + (1 - share) ** 2)) < 0.01  # neighbors share a random word, but no bits


@pytest.mark.parametrize("target", TARGETS)
def test_what_fits_stays_and_what_is_beyond_is_cast(tmp_path: Path, target: str) -> None:
    width = np.dtype(ML_DTYPES[target]).itemsize
    every = np.arange(2 ** (8 * width), dtype=f"u{width}").view(ML_DTYPES[target]).astype(np.float32)
    beyond = np.array([np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 0.0, -0.0], np.float32)
    lazy = lazy_of(tmp_path, np.concatenate([every, beyond]))

    assert raw(lazy.cast(target, seed=3).load().astype(np.float32)) == raw(
        lazy.cast(target).load().astype(np.float32)
    )


def test_seeds_and_names_give_other_numbers(tmp_path: Path, numbers: NDArray[np.float32]) -> None:
    tensorkeep.save({"a": numbers, "b": numbers}, tmp_path / "two.safetensors")
    with tensorkeep.open(tmp_path / "two.safetensors", framework="numpy") as file:
        one = file.cast("bf16", seed=1).load()
        assert raw(one["a"]) != raw(one["b"])
        assert raw(file["a"].cast("bf16", seed=2).load()) != raw(one["a"])
        assert raw(file.rename({"a": "c"})["c"].cast("bf16", seed=1).load()) != raw(one["a"])
        assert raw(file.cast("bf16", seed=1).rename({"a": "c"})["c"].load()) == raw(one["a"])
        assert raw(file["a"].cast("bf16", seed=-(10**30)).load()) != raw(one["a"])
        with pytest.raises(TypeError):
            file["a"].cast("bf16", seed=0.5)  # type: ignore[arg-type]


def test_numbers_are_fixed(tmp_path: Path) -> None:
    rounded = lazy_of(tmp_path, np.full(16, 1.00390625 / 2 + 0.5, np.float32)).cast("bf16", seed=0).load()
    steps = (rounded.view(np.uint16) - 0x3F80).tolist()
    assert steps == FIXED, "a change of the generator changes what a seed means"


FIXED = [0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0]


def test_from_the_command_line(tmp_path: Path, numbers: NDArray[np.float32]) -> None:
    lazy = lazy_of(tmp_path, numbers)
    source = str(tmp_path / "w.safetensors")
    assert main(["reshard", source, str(tmp_path / "a"), "--cast", "bf16", "--stochastic", "5"]) == 0
    assert main(["reshard", source, str(tmp_path / "a"), "--stochastic", "5"]) == 2
    assert main(["convert", source, str(tmp_path / "b"), "--cast", "bf16", "--stochastic", "5"]) == 0
    for name in "ab":
        assert raw(tensorkeep.load(tmp_path / name, framework="numpy")["w"]) == raw(lazy.cast("bf16", seed=5).load())
