"""Casts of the adapters against torch's own, over every number that a narrow dtype has and every tie between two."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tensorkeep.arrays import adapter_for
from tensorkeep.arrays.numpy._dtypes import numpy_dtype
from tensorkeep.arrays.torch._dense import torch_dtype
from tensorkeep.dtypes import BY_NAME

NARROW = ["F8_E5M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F16", "BF16"]
TARGETS = [*NARROW, "F32", "F64"]
SOURCES = [*TARGETS, "F8_E8M0"]
Array = np.ndarray[Any, Any]


def every_number(name: str) -> Array:
    dtype = BY_NAME[name]
    return np.arange(2**dtype.bits, dtype=dtype.bits_name).view(numpy_dtype(dtype))


def numbers(name: str) -> Array:
    """Return all numbers of a narrow dtype; of a wide one those of the narrow ones, their ties and neighbors."""
    wide = numpy_dtype(BY_NAME[name])
    if wide.itemsize < 4:
        return every_number(name)
    found = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, 3e38, -3e38], wide)]
    for narrow in NARROW:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            values = every_number(narrow).astype(np.float64)
        values = np.unique(values[np.isfinite(values)])
        ties = (values[1:] + values[:-1]) / 2
        beyond = values[[0, -1]] * [[1.01], [1.05], [1.1], [1e3]]
        with np.errstate(over="ignore", under="ignore"):
            exact = np.concatenate([values, ties, beyond.reshape(-1)]).astype(wide)
        found += [exact, np.nextafter(exact, wide.type(np.inf)), np.nextafter(exact, wide.type(-np.inf))]
    return np.concatenate(found)


def as_torch(array: Array, name: str) -> torch.Tensor:
    carrier = array.view(f"i{array.itemsize}")
    tensor = torch.from_numpy(carrier)
    viewed = torch_dtype(BY_NAME[name])
    assert viewed is not None
    return tensor.view(viewed)


def same_numbers(left: Array, right: Array) -> bool:
    with np.errstate(invalid="ignore"):
        left, right = left.astype(np.float64), right.astype(np.float64)
    is_nan = np.isnan(left)
    return bool(
        (is_nan == np.isnan(right)).all()
        and (is_nan | (left == right)).all()
        and (is_nan | (np.signbit(left) == np.signbit(right))).all()
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_both_adapters_give_the_numbers_of_torch(source: str, target: str) -> None:
    array, dtype = numbers(source), BY_NAME[target]
    tensor = as_torch(array, source)
    expected = tensor
    if target == "F8_E4M3":  # versions of torch differ in what is too large: the largest number, or NaN
        expected = expected.to(torch.float32).clamp(-448, 448)
    wanted = expected.to(torch_dtype(dtype)).to(torch.float64).numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy's, of overflow
        from_numpy = adapter_for("numpy").cast(array, dtype)
    from_torch = adapter_for("torch").cast(tensor, dtype)

    assert from_numpy.dtype == numpy_dtype(dtype)
    assert from_torch.dtype == torch_dtype(dtype)
    assert same_numbers(from_numpy, wanted)
    assert same_numbers(from_torch.to(torch.float64).numpy(), wanted)


@pytest.mark.parametrize("source", ["F4", "F6_E2M3", "F6_E3M2"])
@pytest.mark.parametrize("target", TARGETS)
def test_packed_numbers_stay_what_they_are(source: str, target: str) -> None:
    every = np.arange(2 ** BY_NAME[source].bits, dtype=np.uint8).view(numpy_dtype(BY_NAME[source]))

    cast = adapter_for("numpy").cast(every, BY_NAME[target])

    is_exact = target not in {"F8_E5M2", "F8_E5M2FNUZ"} or source == "F4"
    expected = every.astype(np.float32).astype(numpy_dtype(BY_NAME[target]))
    assert cast.tobytes() == expected.tobytes()
    if is_exact and "FNUZ" not in target:  # which has no negative zero
        assert same_numbers(cast, every)


def test_what_is_too_large_is_cut_in_e4m3_and_infinite_or_nan_elsewhere() -> None:
    array = np.array([1e6, -np.inf, np.nan, 464, 464.1], np.float32)
    cast = {name: adapter_for("numpy").cast(array, BY_NAME[name]).astype(np.float32).tolist() for name in NARROW}

    assert cast["F8_E4M3"][:2] == [448, -448]
    assert cast["F8_E4M3"][3:] == [448, 448]
    assert cast["F8_E5M2"][:2] == cast["F16"][:2] == [np.inf, -np.inf]
    assert np.isnan(cast["F8_E5M2FNUZ"][:3]).all()
    assert np.isnan(cast["F8_E4M3FNUZ"]).all()
    assert all(np.isnan(values[2]) for values in cast.values())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_shapes_stay(shape: tuple[int, ...]) -> None:
    for target in TARGETS:
        cast = adapter_for("numpy").cast(np.ones(shape, ml_dtypes.bfloat16), BY_NAME[target])

        assert isinstance(cast, np.ndarray)
        assert cast.shape == shape
        assert adapter_for("torch").cast(torch.ones(shape), BY_NAME[target]).shape == shape
