"""tensorkeep.tensorflow gives what safetensors.tensorflow gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.libraries.face import NUMPY, SHAPES, WIDE, Face, array_of


class TestTensorflow(Face):
    module = "tensorflow"
    dtypes = (*NUMPY, *WIDE, "bfloat16")
    shapes = tuple(shape for shape in SHAPES if shape)  # the reference fails for numbers

    def tensor(self, array: Any) -> Any:
        return tf.convert_to_tensor(array)

    def numbers(self, tensor: Any) -> Any:
        return tensor.dtype, tensor.shape, tensor.device, np.asarray(tensor.numpy()).tobytes()


def test_variables_are_saved_as_in_the_reference() -> None:
    import safetensors.tensorflow

    import tensorkeep.tensorflow

    variable = tf.Variable([[1.0, 2.0]])
    assert tensorkeep.tensorflow.save({"w": variable}) == safetensors.tensorflow.save({"w": variable})


def test_helpers() -> None:
    from tensorkeep.tensorflow import _np2tf, _tf2np

    made = _np2tf({"w": array_of("float32", (2, 3))})
    assert isinstance(made["w"], tf.Tensor)
    assert type(_tf2np(made)["w"]) is np.ndarray
