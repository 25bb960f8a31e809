"""NumPy's arrays. Nothing here is imported before an array is needed.

- `_dense`: `NumpyArrays`, arrays over buffers and storages, cast, and described for writing.
- `_arithmetic`: operations for formulas of quantized numbers.
- `_dtypes`: NumPy's dtypes for those of the format; any other as plain data.
- `_codec`: `NumpyCodec`, scalars, dtypes, arrays of other dtypes, and the order of dimensions.
- `_strings`: arrays of strings of any length.
- `_random`: random generators as plain data.
"""

__all__: list[str] = []
