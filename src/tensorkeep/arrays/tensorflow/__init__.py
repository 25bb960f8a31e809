"""TensorFlow's tensors. Nothing here is imported before a tensor is needed.

- `_dense`: `TensorflowArrays`, over memory and on devices.
"""

__all__: list[str] = []
