"""Quantized tensors that are divided with their scales mean the same numbers; others are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import RefusedError
from tensorkeep.quantized import dequantize
from tests.quantized.conftest import written

__all__ = ["written"]

NAME = "model.layers.0.mlp.up_proj"
REFUSED = ("ao ", "fp4 ", "nf4 ", "llm ", "mxfp4 experts")


def numbers(path: Path) -> np.ndarray[Any, Any]:
    opened = tensorkeep.open(path)
    tensors = opened.drop("*_shape") if any(name.endswith("_shape") for name in opened) else opened
    return np.asarray(dequantize(tensors, "f32")[f"{NAME}.weight"].load())


def test_each_rank_has_its_part_of_the_numbers(written: Path, tmp_path: Path) -> None:
    n_divided = 0
    for case in sorted(written.iterdir()):
        if "experts" in case.name:
            continue
        for axis, style in enumerate(("colwise", "rowwise")):
            out = tmp_path / f"{case.name} {style}"
            try:
                done = tensorkeep.reshard_for_ranks(
                    case / "model.safetensors", out, 2, plan={"*.up_proj": style}, durable=False
                )
            except RefusedError:
                continue
            assert not case.name.startswith(REFUSED)
            assert tensorkeep.diff(case / "model.safetensors", out).is_equal
            if any(name.endswith("g_idx") for name in done.divided):
                continue  # the second rank's groups have the numbers that they have in the whole
            parts = [numbers(out / name) for name in done.directories]
            assert np.array_equal(np.concatenate(parts, axis), numbers(case), equal_nan=True), (case.name, style)
            n_divided += 1
    assert n_divided > 30


@pytest.mark.parametrize("case", ["nf4 in uint8", "ao int8", "llm int8"])
def test_bytes_that_do_not_lie_along_the_tensor_are_refused(case: str, written: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="cannot be divided; dequantize them first"):
        tensorkeep.reshard_for_ranks(
            written / case / "model.safetensors", tmp_path / "out", 2, plan={"*.up_proj": "colwise"}
        )
