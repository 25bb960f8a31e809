"""Parameters of Paddle: what a file keeps of one is that it was one, and whether it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import paddle
from paddle.base.framework import EagerParamBase

from tensorkeep.arrays._attributes import check_attributes
from tensorkeep.arrays._base import ObjectCodec
from tensorkeep.errors import FormatError


class PaddleCodec(ObjectCodec):
    """What a file keeps of Paddle's tensors beside their elements."""

    def attributes_of(self, tensor: Any) -> dict[str, Any]:
        """Return what to save of a dense tensor beside its elements."""
        attributes: dict[str, Any] = {"class": "Parameter"} if isinstance(tensor, EagerParamBase) else {}
        return attributes if tensor.stop_gradient else attributes | {"grad": True}

    def with_attributes(self, tensor: Any, attributes: Mapping[str, Any]) -> Any:
        """Return a parameter, or a tensor that has gradients, if that was saved; else the tensor."""
        name, has_gradient, _ = check_attributes(attributes, tensor.ndim)
        if has_gradient and not (tensor.is_floating_point() or tensor.is_complex()):
            raise FormatError("a tensor of a dtype without gradients requires them", found=str(tensor.dtype))
        if name == "Parameter":
            return EagerParamBase.from_tensor(tensor, trainable=has_gradient)
        tensor.stop_gradient = not has_gradient
        return tensor

    def hint(self, value: Any) -> str:
        """Say what to do with a tensor that cannot be saved."""
        if value.dtype == paddle.complex128:
            return "Save what its numpy() returns, which comes back as a NumPy array, or cast it to complex64"
        if value.is_sparse_coo():
            return "Save its indices(), its values() and its shape in a dict"
        if value.is_sparse_csr():
            return "Save its crows(), cols(), values() and its shape in a dict"
        return super().hint(value)
