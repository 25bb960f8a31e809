"""One file of tensors: transport, formats and arrays meet here.

- `_selection`: a NumPy index, taken apart into what is read from each axis and what is done with it then. Pure.
- `_boxes`: a selection cut into reads that are neither too small nor too large. Pure.
- `_reader`: selections and whole files, read into tensors of one library.
- `_lazy`: `LazyTensor`, shape and dtype now, data on indexing.
- `_file`: `TensorFile`, a read-only mapping of name to lazy tensor, and `open_file`.
- `_sharing`: which tensors share memory. Pure.
- `_write`: tensors to bytes or to a file.
"""

from tensorkeep.tensors._file import TensorFile, load, open_file
from tensorkeep.tensors._lazy import LazyTensor
from tensorkeep.tensors._sharing import overlapping
from tensorkeep.tensors._write import save, serialize_tensors, write_tensors

__all__ = [
    "LazyTensor",
    "TensorFile",
    "load",
    "open_file",
    "overlapping",
    "save",
    "serialize_tensors",
    "write_tensors",
]
