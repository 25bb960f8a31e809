"""tensorkeep.mlx gives what safetensors.mlx gives."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from tests.libraries.face import NUMPY, Face, array_of


class TestMlx(Face):
    module = "mlx"
    dtypes = (*NUMPY, "int64", "uint64")
    loaded_only = ("float64", "bfloat16")

    def tensor(self, array: Any) -> Any:
        return mx.array(array)

    def numbers(self, tensor: Any) -> Any:
        return tensor.dtype, tensor.shape, tensor.tolist()


def test_bfloat16_is_saved() -> None:
    import tensorkeep.mlx

    array = mx.arange(6, dtype=mx.bfloat16)
    loaded = tensorkeep.mlx.load(tensorkeep.mlx.save({"w": array}))["w"]
    assert (loaded.dtype, loaded.tolist()) == (mx.bfloat16, array.tolist())


def test_helpers() -> None:
    from tensorkeep.mlx import _mx2np, _np2mx

    made = _np2mx({"w": array_of("float32", (2, 3))})
    assert isinstance(made["w"], mx.array)
    assert type(_mx2np(made)["w"]) is np.ndarray
