"""What every kind is made of.

- `_options`: `OpenOptions` and `LoadOptions`.
- `_trusting`: policies, imported only when somebody asks for one.
- `_place`: `Place`, what is to be opened, inspected as little as possible.
- `_findings`: `Finding` and `Verification`, what is wrong with a checkpoint.
- `_checks`: `Check` and `Checks`, what can be verified.
- `_convertible`: what a conversion needs from its source.
- `_html`: what is open beside plain tensors, for notebooks.
- `_opened`: `Opened`, the base class of everything that is open.
- `_kind`: `Kind`, the record of how something is recognized, opened, checked and fetched.
- `_lazy`: `LazyKind`, a kind that is imported only when a place may be one.
- `_flat_file`: `FlatFile`, for formats that are a header and byte ranges.
- `_expansion`: the bound on tensors that share bytes.
- `_shared_bytes`: `SharedBytesFile`, in which tensors may share bytes.
- `_file_set`: `FileSet`, several files as one mapping.
- `_weight_map`: whether an index and its shards say the same.
- `_indexed_files`: an index and its shards, as transformers names them.
"""

from tensorkeep.kinds.base._checks import Check, Checks, combined, names_to_check
from tensorkeep.kinds.base._convertible import LeftOut, NestedData, StoredView, TensorLeaf
from tensorkeep.kinds.base._expansion import refuse_expansion
from tensorkeep.kinds.base._file_set import FileSet
from tensorkeep.kinds.base._findings import Finding, Verification, refuse
from tensorkeep.kinds.base._flat_file import FlatFile, file_kind
from tensorkeep.kinds.base._indexed_files import IndexedFiles, find_indexed
from tensorkeep.kinds.base._kind import Files, Found, Kind
from tensorkeep.kinds.base._lazy import LazyKind
from tensorkeep.kinds.base._opened import Opened
from tensorkeep.kinds.base._options import LoadOptions, OpenOptions
from tensorkeep.kinds.base._place import Place
from tensorkeep.kinds.base._shared_bytes import SharedBytesFile
from tensorkeep.kinds.base._trusting import by_environment, policy_for
from tensorkeep.kinds.base._weight_map import refuse_disagreement, refuse_missing_shards

__all__ = [
    "Check",
    "Checks",
    "FileSet",
    "Files",
    "Finding",
    "FlatFile",
    "Found",
    "IndexedFiles",
    "Kind",
    "LazyKind",
    "LeftOut",
    "LoadOptions",
    "NestedData",
    "OpenOptions",
    "Opened",
    "Place",
    "SharedBytesFile",
    "StoredView",
    "TensorLeaf",
    "Verification",
    "by_environment",
    "combined",
    "file_kind",
    "find_indexed",
    "names_to_check",
    "policy_for",
    "refuse",
    "refuse_disagreement",
    "refuse_expansion",
    "refuse_missing_shards",
]
