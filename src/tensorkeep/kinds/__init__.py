"""What is stored at a path? One folder or file per kind: how it is recognised, and how it is opened.

- `_options`: what callers want of an open or a load.
- `_place`: something that is to be opened, looked at no more often than needed.
- `_findings`: what is wrong with a checkpoint.
- `_checks`: what can be checked of something that is open.
- `_convertible`: what a conversion asks of its source.
- `_opened`: `Opened`, the base of all that is open.
- `_base`: `Kind`, the record of how something is recognised, opened, checked and fetched.
- `_flat_file`: files that are a header and ranges of bytes: a kind of one line, and one parse function.
- `safetensors/`: safetensors files: one, or an index and its shards.
- `npy`: NumPy's `.npy` and `.npz`.
- `pickles/`: PyTorch's pickles: nested data with lazy tensors.
- `dcp/`: what torch.distributed.checkpoint wrote, as one checkpoint.
- `folder`: a directory with a manifest, checked and fetched with every file in it.
- `registry`: all kinds, in the order in which they are looked for.

This face brings in no kind: those who read safetensors files do not pay for the others.
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
