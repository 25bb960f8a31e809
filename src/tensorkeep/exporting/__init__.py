"""From any checkpoint to a file of another format, streamed and read back. What the format cannot hold is said.

- `_format`: `ExportFormat`, the record of one format, and what it plans: the files, and how each is written.
- `_npy`: NumPy's `.npz` and `.npy`.
- `_msgpack`: Flax's `.msgpack`.
- `_hdf5`: HDF5 files, and Keras's weights.
- `_gguf`: GGUF.
- `_tensorflow`: TensorFlow's checkpoints.
- `_registry`: all formats, by name and suffix.
- `_fit`: which tensors a format cannot hold.
- `_content`: the tensors to write, and the digests of the bytes that were.
- `_read_back`: what was written, compared with these.
- `_target`: where the files appear: a directory or a store.
- `_export`: `export`, and `Export`, which it returns.
"""

from tensorkeep.exporting._export import Export, export
from tensorkeep.exporting._format import Content, ExportFormat, OutputFile, Plan
from tensorkeep.exporting._registry import FORMATS

__all__ = [
    "FORMATS",
    "Content",
    "Export",
    "ExportFormat",
    "OutputFile",
    "Plan",
    "export",
]
