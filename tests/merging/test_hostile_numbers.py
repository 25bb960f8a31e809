"""Numbers that break a merge: shown or refused, and never hidden."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep import LazyTensors
from tensorkeep.errors import RefusedError
from tensorkeep.merging import add_lora, average, dare, dare_ties, ema, slerp, task_arithmetic, ties


def opened(*numbers: Any, dtype: Any = np.float32) -> list[LazyTensors]:
    return [tensorkeep.open(tensorkeep.numpy.save({"x": np.array(each, dtype)})) for each in numbers]


MERGES: dict[str, Callable[..., LazyTensors]] = {
    "average": average,
    "ema": lambda *models: ema(*models, decay=0.5),
    "slerp": lambda *models: slerp(*models[:2], 0.5),
    "task arithmetic": task_arithmetic,
    "ties": lambda *models: ties(*models, density=0.5),
    "dare": lambda *models: dare(*models, density=0.999, seed=0),
    "dare_ties": lambda *models: dare_ties(*models, density=0.999, seed=0),
}


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_nan_of_a_model_shows(merge: Callable[..., LazyTensors]) -> None:
    merged = merge(*opened([1, 1, 1, 1], [1, nan, 3, 4]))["x"].load()
    assert np.isnan(merged[1])


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_settings_of_numpy_change_nothing(merge: Callable[..., LazyTensors]) -> None:
    models = opened([1, inf, nan, 3e38], [-1, -inf, 1, 3e38])
    with warnings.catch_warnings(action="error"), np.errstate(all="raise"):
        merge(*models)["x"].load()


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_a_number_without_dimensions(merge: Callable[..., LazyTensors]) -> None:
    merged = merge(*opened(1, 2))["x"].load()
    assert merged.shape == ()
    assert 1 <= merged <= 2 * 1.002


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("n_models", [1, 2, 3])
def test_the_mean_of_large_numbers_is_finite(n_models: int, dtype: Any) -> None:
    lowest = np.array(ml_dtypes.finfo(dtype).min, dtype)  # as in a mask
    merged = average(*opened(*[[lowest, 1, inf, -lowest]] * n_models, dtype=dtype))["x"].load()
    np.testing.assert_allclose(merged.astype(float), [float(lowest), 1, inf, -float(lowest)], rtol=1e-6)


FACTORS: list[Callable[[LazyTensors, LazyTensors], object]] = [
    lambda a, b: average(a, b, weights=[inf, 1]),
    lambda a, b: average(a, b, weights=[nan, 1]),
    lambda a, b: average(a, b, weights=[1e308, -1e308]),
    lambda a, b: task_arithmetic(a, b, weights=[nan]),
    lambda a, b: task_arithmetic(a, b, scale=inf),
    lambda a, b: ties(a, b, density=1, weights=[inf]),
    lambda a, b: ties(a, b, density=1, scale=nan),
    lambda a, b: slerp(a, b, inf),
    lambda a, b: slerp(a, b, nan),
    lambda a, b: slerp(a, b, 2),
    lambda a, b: slerp(a, b, -0.1),
    lambda a, b: dare(a, b, density=0.5, seed=1, scale=-inf),
    lambda a, b: dare(a, b, density=1e-39, seed=1),
    lambda a, b: dare_ties(a, b, density=0.5, seed=1, weights=[nan]),
    lambda a, b: dare_ties(a, b, density=1e-39, seed=1),
]


@pytest.mark.parametrize("merge", FACTORS, ids=range(len(FACTORS)))
def test_factors_that_would_make_everything_infinite(merge: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"finite number|sum of the weights|density|at most 1"):
        merge(*opened([1, 2], [3, 4]))


def test_weights_near_the_largest_number() -> None:
    assert average(*opened([1, 2], [3, 4]), weights=[1e308, 1e308])["x"].load().tolist() == [2, 3]


def test_arguments_are_refused_when_a_merge_is_made() -> None:
    with pytest.raises(TypeError, match="steps of a run"):
        ema(decay=0)
    with pytest.raises(TypeError, match="float"):
        dare(*opened([1], [2]), density=0.5, seed=1.5)  # type: ignore[arg-type]
    first, second = opened([1]), opened([1], dtype=np.int64)
    with pytest.raises(RefusedError, match=r"another dtype in another model.*found F32 in .*, I64 in "):
        average(*first, *second, integers="last")


def test_equal_complex_numbers_are_equal_with_nan() -> None:
    assert np.isnan(average(*opened([nan], [nan], dtype=np.complex64))["x"].load())


def test_directions_of_very_large_numbers() -> None:
    merged = slerp(*opened([3e38, 0], [0, 3e38]), 0.5)["x"].load()
    np.testing.assert_allclose(merged, [2.12e38, 2.12e38], rtol=0.01)


def test_equal_changes_are_kept_from_the_first_on() -> None:
    merged = ties(*opened([0] * 6, [1, -2, 2, 1, 2, -1]), density=2 / 3)["x"].load()
    assert merged.tolist() == [1, -2, 2, 0, 2, 0]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rank", [3, 70])
def test_rows_of_an_adapted_weight_are_those_of_the_whole(dtype: Any, rank: int) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((130, 301)).astype(dtype)
    factors = {
        "x.lora_A.weight": random.standard_normal((rank, 301)).astype(np.float32),
        "x.lora_B.weight": random.standard_normal((130, rank)).astype(np.float32),
    }
    base, adapter = (tensorkeep.open(tensorkeep.numpy.save(each)) for each in ({"x.weight": weight}, factors))

    lazy = add_lora(base, adapter, settings={"peft_type": "LORA", "lora_alpha": 5})["x.weight"]

    whole = lazy.load()
    assert all(np.array_equal(lazy[row : row + 1], whole[row : row + 1]) for row in range(130))
    assert np.array_equal(lazy[17:83, ::7], whole[17:83, ::7])
    exact = weight.astype(np.float64) + 5 / rank * (
        factors["x.lora_B.weight"].astype(np.float64) @ factors["x.lora_A.weight"].astype(np.float64)
    )
    np.testing.assert_allclose(whole.astype(np.float64), exact, rtol=2.0**-7, atol=2.0**-8)


def test_an_adapted_weight_without_rows() -> None:
    base = tensorkeep.open(tensorkeep.numpy.save({"x.weight": np.ones((0, 3), np.float32)}))
    factors = {"x.lora_A.weight": np.ones((2, 3), np.float32), "x.lora_B.weight": np.ones((0, 2), np.float32)}
    adapter = tensorkeep.open(tensorkeep.numpy.save(factors))
    lazy = add_lora(base, adapter, settings={"peft_type": "LORA", "lora_alpha": 5})["x.weight"]
    assert lazy.load().shape == lazy[...].shape == (0, 3)
    assert tensorkeep.numpy.load(tensorkeep.numpy.save({"w": lazy.load()}))["w"].shape == (0, 3)


def test_modules_that_an_adapter_holds_whole_may_hold_anything() -> None:
    old = {"h.scale": np.float32(1).reshape(()), "h.n": np.array(3), "h.w": np.ones((2, 2), ml_dtypes.bfloat16)}
    new = {"h.scale": np.float32(2).reshape(()), "h.n": np.array(9), "h.w": np.full((2, 2), 1.001, np.float32)}
    base, adapter = (tensorkeep.open(tensorkeep.numpy.save(each)) for each in (old, new))

    merged = add_lora(base, adapter, settings={"peft_type": "LORA", "lora_alpha": 1, "modules_to_save": ["h"]}).load()

    assert (float(merged["h.scale"]), int(merged["h.n"])) == (2, 9)
    assert merged["h.w"].dtype == ml_dtypes.bfloat16


def test_shapes_that_cannot_be_declared() -> None:
    (file,) = opened([1, 2, 3])
    with pytest.raises(ValueError, match="negative"):
        file.map(np.abs, shape=(-3,))
    with pytest.raises(TypeError, match="float"):
        file.map(np.abs, shape=(3.5,))  # type: ignore[arg-type]


def test_nothing_is_planned_for_an_empty_slice() -> None:
    (file,) = opened(list(range(1000)))
    assert file.map(np.abs).plan({"x": slice(0, 0)}).nbytes == 0
