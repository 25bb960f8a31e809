"""Kinds: what can be at a path, one folder or file per kind, with how it is recognized and opened.

- `_options`: `OpenOptions` and `LoadOptions`.
- `_place`: `Place`, what is to be opened, inspected as little as possible.
- `_findings`: `Finding` and `Verification`, what is wrong with a checkpoint.
- `_checks`: `Check` and `Checks`, what can be verified.
- `_convertible`: what a conversion needs from its source.
- `_opened`: `Opened`, the base class of everything that is open.
- `_base`: `Kind`, the record of how something is recognized, opened, checked and fetched.
- `_flat_file`: `FlatFile`, for formats that are a header and byte ranges.
- `_lazy`: `LazyKind`, a kind that is imported only when a place may be one.
- `_weight_map`: whether an index and its shards say the same.
- `_file_set`: `FileSet`, several files as one mapping.
- `_indexed_files`: an index and its shards, as transformers names them.
- `safetensors/`: a safetensors file, or an index and its shards.
- `npy`: NumPy's `.npy` and `.npz`.
- `msgpack/`: Flax's files of MessagePack.
- `arrow/`: Arrow's files, also Feather.
- `paddle/`: Paddle's parameters for inference.
- `gguf/`: GGUF files, and shards of them.
- `hdf5/`: HDF5 files.
- `graphs/`: ONNX models, with the files beside them.
- `keras/`: Keras's archives, and shards of HDF5.
- `pickles/`: PyTorch's pickles: nested data with lazy tensors.
- `tensorflow/`: checkpoints and SavedModels of TensorFlow.
- `dcp/`: directories of torch.distributed.checkpoint.
- `orbax/`: directories of orbax, through tensorstore if the caller names it.
- `folder`: a directory with a manifest, checked and fetched with every file in it.
- `registry`: `KINDS`, all kinds in order of preference.

This module imports no kind, so that readers of safetensors files do not pay for the others.
"""

from tensorkeep.kinds._base import Files, Found, Kind
from tensorkeep.kinds._checks import Check, Checks, names_to_check
from tensorkeep.kinds._convertible import LeftOut, NestedData, StoredView, TensorLeaf
from tensorkeep.kinds._findings import Finding, Verification, refuse
from tensorkeep.kinds._flat_file import FlatFile, file_kind
from tensorkeep.kinds._opened import Opened
from tensorkeep.kinds._options import LoadOptions, OpenOptions
from tensorkeep.kinds._place import Place

__all__ = [
    "Check",
    "Checks",
    "Files",
    "Finding",
    "FlatFile",
    "Found",
    "Kind",
    "LeftOut",
    "LoadOptions",
    "NestedData",
    "OpenOptions",
    "Opened",
    "Place",
    "StoredView",
    "TensorLeaf",
    "Verification",
    "file_kind",
    "names_to_check",
    "refuse",
]
