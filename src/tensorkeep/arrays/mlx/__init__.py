"""MLX's arrays. Nothing here is imported before an array is needed.

- `_dense`: `MlxArrays`, read or copied into MLX's memory: it uses none but its own.
- `memory`: MLX's memory, and arrays in it that any thread can use.
"""

__all__: list[str] = []
