"""One file of tensors: transport, formats and arrays meet here.

- `_selection`: a NumPy index, taken apart into what is read from each axis and what is done with it then. Pure.
- `_boxes`: a selection cut into reads that are neither too small nor too large. Pure.
- `_blocks`: the elements of a selection, copied out of memory or a source.
- `_base`: `Reader`, what a lazy tensor reads with.
- `_reader`: selections and whole files, read into tensors of one library.
- `_strided`: a reader of views that leave gaps, repeat or lie crosswise.
- `_cast`: a reader that converts numbers to another floating-point dtype on their way.
- `_lazy`: `LazyTensor`, shape and dtype now, data on indexing.
- `_names`: names chosen by patterns, changed, and looked for when misspelt. Pure.
- `_mapping`: `LazyTensors`, lazy tensors by name, and `TensorView`: fewer, renamed, cast.
- `_file`: `TensorFile`, a read-only mapping of name to lazy tensor, and `open_file`.
- `_sharing`: which tensors share memory. Pure.
- `_digesting`: digests made by another thread while the bytes are written.
- `_body`: all bytes of one file, with digests of what passes.
- `_write`: tensors to bytes or to a file.
"""

from tensorkeep.tensors._base import StoredTensor, stored_pieces
from tensorkeep.tensors._body import Sealing, write_file
from tensorkeep.tensors._file import TensorFile, file_over, load, open_file
from tensorkeep.tensors._lazy import LazyTensor, load_together
from tensorkeep.tensors._mapping import LazyTensors, OpenTensors, TensorView, counted
from tensorkeep.tensors._names import Renaming, Selector, chosen_names
from tensorkeep.tensors._reader import TensorReader
from tensorkeep.tensors._sharing import overlapping
from tensorkeep.tensors._strided import Layout, StridedReader
from tensorkeep.tensors._write import Ties, describe, save, serialize_tensors, write_tensors

__all__ = [
    "Layout",
    "LazyTensor",
    "LazyTensors",
    "OpenTensors",
    "Renaming",
    "Sealing",
    "Selector",
    "StoredTensor",
    "StridedReader",
    "TensorFile",
    "TensorReader",
    "TensorView",
    "Ties",
    "chosen_names",
    "counted",
    "describe",
    "file_over",
    "load",
    "load_together",
    "open_file",
    "overlapping",
    "save",
    "serialize_tensors",
    "stored_pieces",
    "write_file",
    "write_tensors",
]
