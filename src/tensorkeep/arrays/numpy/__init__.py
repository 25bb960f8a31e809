"""NumPy's arrays.

- `_dtypes`: the same for NumPy: its dtypes, bytes that hold nothing, its random generators, all of it.
- `_padding`: the same for NumPy: its dtypes, bytes that hold nothing, its random generators, all of it.
- `_random`: the same for NumPy: its dtypes, bytes that hold nothing, its random generators, all of it.
- `_codec`: the same for NumPy: its dtypes, bytes that hold nothing, its random generators, all of it.
- `_adapter`: the adapters.
"""

__all__: list[str] = []
