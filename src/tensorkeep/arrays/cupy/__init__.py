"""CuPy's arrays. Nothing here is imported before an array is needed. It has been run nowhere yet: it needs a GPU.

- `_dense`: `CupyArrays`, copied to a GPU.
"""

__all__: list[str] = []
