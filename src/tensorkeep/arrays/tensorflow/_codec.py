"""Variables of TensorFlow: what a file keeps of one is that it was one, and whether it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tensorkeep.arrays._attributes import check_attributes
from tensorkeep.arrays._base import ObjectCodec


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
        if isinstance(value, tf.Variable):
            return "Save what its value() returns"
        return super().hint(value)
