"""JAX's arrays. Nothing here is imported before an array is needed.

- `_dense`: `JaxArrays`, on devices and over memory; `FlaxArrays`, which converts 64-bit numbers as jax does.
- `_sharded`: arrays in several shards, described for writing.
- `memory`: arrays on the CPU over the memory of NumPy arrays.
- `weak`: weak dtypes.
- `_codec`: random keys, and what jax keeps of an array beside its elements.
- `dtypes`: the dtype of arrays for one of the format.
- `devices`: the device for a name.
"""

__all__: list[str] = []
