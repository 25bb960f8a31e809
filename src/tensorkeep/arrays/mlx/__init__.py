"""MLX's arrays. Nothing here is imported before an array is needed.

- `_dense`: `MlxArrays`, copied from memory: MLX uses none but its own.
"""

__all__: list[str] = []
