"""NumPy's `.npy` and `.npz` files: arrays behind headers of Python literals, alone or as members of a zip archive.

Nothing evaluates a header, and nothing unpickles: arrays of Python objects are listed as unknown.

- `_read`: `parse_npy` and `parse_npz`.
- `_arrays`: where the tensors of an array are.
- `_records`: a field of packed records, in chunks.
- `_header`: the header of one array.
- `_elements`: its dtype.
- `_literal`: the Python literals that headers are.
- `_emit`: the header of an array that is written.
"""

from tensorkeep.formats.npy._emit import ARRAY_DTYPES, MAX_ARRAY_NDIM, emit_array_header
from tensorkeep.formats.npy._header import FIRST_NBYTES, MAGIC, ArrayHeader, header_nbytes, parse_array_header
from tensorkeep.formats.npy._read import ARCHIVE_SUFFIX, is_npz, parse_npy, parse_npz

__all__ = [
    "ARCHIVE_SUFFIX",
    "ARRAY_DTYPES",
    "FIRST_NBYTES",
    "MAGIC",
    "MAX_ARRAY_NDIM",
    "ArrayHeader",
    "emit_array_header",
    "header_nbytes",
    "is_npz",
    "parse_array_header",
    "parse_npy",
    "parse_npz",
]
