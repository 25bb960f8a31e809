"""NumPy's `.npy` and `.npz` files: arrays behind headers of Python literals, alone or as members of a zip archive.

Nothing evaluates a header, and nothing unpickles: arrays of Python objects are listed as unknown.

- `_read`: `read_npy` and `read_npz`, and how to recognise both.
- `_arrays`: `ArrayFile`, all that such a file holds, and each array's place in it.
- `_header`: the header of one array.
- `_elements`: its dtype.
- `_literal`: the Python literals that headers are.
"""

from tensorkeep.formats.npy._arrays import ArrayFile, StoredArray, UnknownArray
from tensorkeep.formats.npy._read import is_npy, is_npz, read_npy, read_npz

__all__ = [
    "ArrayFile",
    "StoredArray",
    "UnknownArray",
    "is_npy",
    "is_npz",
    "read_npy",
    "read_npz",
]
