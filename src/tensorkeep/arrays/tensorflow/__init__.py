"""TensorFlow's tensors. Nothing here is imported before a tensor is needed.

- `_dense`: `TensorflowArrays`, over memory and on devices.
- `_codec`: `TensorflowCodec`, variables.
"""

__all__: list[str] = []
