"""Kinds: what can be at a path, one folder or file per kind, with how it is recognized and opened.

- `base/`: what every kind is made of.
- `safetensors/`: a safetensors file, or an index and its shards.
- `patched/`: a checkpoint kept as another one and patches.
- `npy`: NumPy's `.npy` and `.npz`.
- `msgpack/`: Flax's files of MessagePack.
- `arrow/`: Arrow's files, also Feather.
- `paddle/`: Paddle's parameters for inference.
- `gguf/`: GGUF files, and shards of them.
- `hdf5/`: HDF5 files.
- `graphs/`: ONNX and OpenVINO models, with the files beside them.
- `keras/`: Keras's archives, and shards of HDF5.
- `tensorizer/`: files of CoreWeave's tensorizer.
- `pt2/`: programs of torch.export.
- `pickles/`: PyTorch's pickles: nested data with lazy tensors.
- `tensorflow/`: checkpoints and SavedModels of TensorFlow.
- `dcp/`: directories of torch.distributed.checkpoint.
- `orbax/`: directories of orbax; through tensorstore if the caller names it.
- `ranks`: directories with a checkpoint for each rank.
- `folder`: a directory with a manifest, checked and fetched with every file in it.
- `registry`: `KINDS`, all kinds in order of preference.
- `given`: what a caller has open already, in the place of a path.
- `origins`: checkpoints and tensors as plain values, for other processes.

This module imports no kind, so that readers of safetensors files do not pay for the others.
"""

from tensorkeep.kinds.base import (
    Check,
    Checks,
    Files,
    Finding,
    FlatFile,
    Found,
    Kind,
    LeftOut,
    LoadOptions,
    NestedData,
    Opened,
    OpenOptions,
    Place,
    StoredView,
    TensorLeaf,
    Verification,
    by_environment,
    file_kind,
    names_to_check,
    policy_for,
    refuse,
)

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
    "by_environment",
    "file_kind",
    "names_to_check",
    "policy_for",
    "refuse",
]
