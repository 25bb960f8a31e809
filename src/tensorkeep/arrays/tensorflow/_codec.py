"""Variables of TensorFlow: what a file keeps of one is that it was one, and whether it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from tensorkeep.arrays._attributes import check_attributes
from tensorkeep.arrays._base import ObjectCodec

_QUANTIZED: Final = {
    tf.qint8: tf.int8,
    tf.quint8: tf.uint8,
    tf.qint16: tf.int16,
    tf.quint16: tf.uint16,
    tf.qint32: tf.int32,
}
"""Dtypes of numbers whose range is kept beside them, and the dtype of the numbers themselves."""


class TensorflowCodec(ObjectCodec):
    """What a file keeps of TensorFlow's tensors beside their elements."""

    def attributes_of(self, tensor: Any) -> dict[str, Any]:
        """Return what to save of a dense tensor beside its elements."""
        if not isinstance(tensor, tf.Variable):
            return {}
        return {"class": "Variable", "grad": True} if tensor.trainable else {"class": "Variable"}

    def with_attributes(self, tensor: Any, attributes: Mapping[str, Any]) -> Any:
        """Return a variable with memory of its own if that was saved, else the tensor."""
        name, is_trained, _ = check_attributes(attributes, len(tensor.shape))
        if name != "Variable":
            return tensor
        return tf.Variable(tf.constant(tensor.numpy()), trainable=is_trained)

    def hint(self, value: Any) -> str:
        """Say what to do with a tensor or variable that cannot be saved."""
        dtype = getattr(value, "dtype", None)
        if dtype == tf.complex128:
            return "Save what its numpy() returns, which comes back as a NumPy array, or cast it to complex64"
        if dtype == tf.string:
            return "Save what its numpy() returns, which comes back as a NumPy array"
        if dtype in _QUANTIZED:
            return f"Save tf.bitcast(..., tf.{_QUANTIZED[dtype].name}) of it, and its range as numbers"
        if isinstance(value, tf.Variable):
            return "Save what its value() returns"
        return super().hint(value)
