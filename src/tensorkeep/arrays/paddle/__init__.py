"""PaddlePaddle's tensors. Nothing here is imported before a tensor is needed.

- `_dense`: `PaddleArrays`, over memory and on devices.
- `_codec`: `PaddleCodec`, parameters and gradients.
"""

__all__: list[str] = []
