"""tensorkeep.paddle gives what safetensors.paddle gives."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import paddle
import pytest

from tensorkeep.arrays import adapter_for, tensor_to_write
from tensorkeep.dtypes import BY_NUMPY
from tests.libraries.face import Face, array_of


class TestPaddle(Face):
    module = "paddle"
    dtypes = (
        *("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float64"),
        *("bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"),
    )

    loaded_shapes = ((3, 4), (), (2, 2, 2), (5,))  # the reference fails for tensors without elements
    backends: ClassVar[dict[str, str]] = {"mmap": "mmap", "pread": "mmap"}  # the reference's pread finds no module

    def tensor(self, array: Any) -> Any:
        dtype = BY_NUMPY[array.dtype.name]
        return adapter_for("paddle").from_elements(array.view(dtype.bits_name), dtype)

    def numbers(self, tensor: Any) -> Any:
        content = b"".join(bytes(buffer) for buffer in tensor_to_write(tensor, "w").buffers())
        return tensor.dtype, tensor.shape, str(tensor.place), tensor.stop_gradient, content

    def test_the_tables_are_the_same(self, ours: Any, theirs: Any) -> None:
        assert ours._SIZE == theirs._SIZE
        assert ours._TYPES == theirs._TYPES
        assert ours.NPDTYPES == theirs.NPDTYPES
        assert ours._getdtype("BF16") == theirs._getdtype("BF16")

    def test_other_values_are_refused_in_the_same_words(self, ours: Any, theirs: Any) -> None:
        for value in ([1], {"w": np.ones(3)}, {"w": 1}):
            texts = []
            for module in (ours, theirs):
                with pytest.raises(ValueError, match=r"paddle\.Tensor\]? but received") as caught:
                    module.save(value)
                texts.append(str(caught.value))
            assert texts[0] == texts[1]

    def test_the_raw_layer(self, ours: Any, theirs: Any) -> None:
        tensors = {"a": paddle.arange(6, dtype="float32").reshape([2, 3]), "b": paddle.zeros([2], dtype="bfloat16")}
        kept: list[Any] = []
        content = ours.serialize(ours._flatten(tensors, kept))
        assert bytes(content) == theirs.save(tensors)
        loaded = ours._view2paddle(ours.deserialize(bytes(content)), "cpu")
        assert loaded["a"].tolist() == tensors["a"].tolist()
        for module in (ours, theirs):
            with pytest.raises(ValueError, match="non contiguous tensor: `t`"):
                module._flatten({"t": tensors["a"].T}, kept)


def test_a_transposed_tensor_is_packed() -> None:
    import tensorkeep.paddle

    tensor = paddle.arange(6, dtype="float32").reshape([2, 3]).T
    assert tensorkeep.paddle.load(tensorkeep.paddle.save({"w": tensor}))["w"].tolist() == tensor.tolist()


def test_helpers() -> None:
    from tensorkeep.paddle import _np2paddle, _paddle2np

    made = _np2paddle({"w": array_of("float32", (2, 3))})
    assert isinstance(made["w"], paddle.Tensor)
    assert type(_paddle2np(made)["w"]) is np.ndarray
