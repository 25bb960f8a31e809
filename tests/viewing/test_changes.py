"""How far two tensors are apart is what `diff` says of them, for every dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.viewing.answers import difference

INF, NAN = np.inf, np.nan
PAIRS: dict[str, tuple[Any, Any, float]] = {
    "I64 beyond float64": (np.array([2**53, -(2**63), 5]), np.array([2**53 + 1, -(2**63), 5]), 1),
    "U64 beyond float64": (np.array([2**64 - 1, 3], np.uint64), np.array([2**64 - 2, 3], np.uint64), 1),
    "U64 far apart": (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), 2.0**64),
    "C64 of one magnitude": (np.array([1 + 1j, 2], np.complex64), np.array([1 - 1j, 2], np.complex64), 2),
    "C64 with NaN": (
        np.array([complex(NAN, 1), INF], np.complex64),
        np.array([complex(NAN, 1), INF], np.complex64),
        0,
    ),
    "F32": (np.array([1, NAN, INF, 0], np.float32), np.array([1.5, NAN, INF, -0.0], np.float32), 0.5),
    "F64": (np.array([1e300, 1]), np.array([1e300, 1 + 2**-52]), 2**-52),
    "BF16": (np.array([1, NAN, 2], ml_dtypes.bfloat16), np.array([1, NAN, 3], ml_dtypes.bfloat16), 1),
    "F8_E4M3": (np.array([1, 2], ml_dtypes.float8_e4m3fn), np.array([1, 4], ml_dtypes.float8_e4m3fn), 2),
    "BOOL": (np.array([True, False]), np.array([True, True]), 1),
    "I8": (np.array([-128, 3], np.int8), np.array([127, 3], np.int8), 255),
}


@pytest.mark.parametrize(("a", "b", "largest"), PAIRS.values(), ids=PAIRS)
def test_it_is_what_diff_says(tmp_path: Path, a: Any, b: Any, largest: float) -> None:
    for name, array in (("a", a), ("b", b)):
        tensorkeep.save({"x": array}, tmp_path / f"{name}.safetensors")
    files = [tensorkeep.open(tmp_path / f"{name}.safetensors") for name in "ab"]

    shown = difference(files[0]["x"], files[1]["x"], lambda *_: None)

    assert shown["n_different"] == int(largest > 0)
    assert max(abs(shown["min"]), abs(shown["max"])) == largest
    (said,) = tensorkeep.diff(*files).changed or [None]
    if said is not None:
        assert (said.max_abs, said.n_different) == (largest, shown["n_different"])
        assert (said.norm, said.relative) == (pytest.approx(shown["norm"]), shown["relative"])
