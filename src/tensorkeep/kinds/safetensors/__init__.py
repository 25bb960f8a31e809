"""Safetensors files: one, or an index and its shards.

- `_aliases`: tensors that are stored as views of others.
- `_tied`: loads tensors so that they share memory again.
- `_attributes`: restores attributes of loaded tensors, such as `requires_grad`.
- `_saved`: `SavedTensors`, open safetensors files and the state in them.
- `_file`: `TensorFile`, one file as a mapping of name to lazy tensor, and `open_file`.
- `_misfit`: what is in place of a shard.
- `_encrypted_index`: the plain index in an encrypted one.
- `_examine`: compares the index with all headers.
- `_duplicate`: a single file beside an index that does not list it.
- `_strays`: files beside a checkpoint that look like parts of it but are not.
- `_consistent_read`: reads a checkpoint that a save may replace during the read.
- `_checkpoint`: `Checkpoint`, the tensors of all shards as one mapping, and what it has in common with others.
- `_blocks`: the file with the block digests.
- `_digests`: tensor digests and the SHA-256 of shards, as checks.
- `_verify`: the checks of files, even if they are too damaged to open.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.safetensors._aliases import names_of, sharing_of
from tensorkeep.kinds.safetensors._checkpoint import (
    Checkpoint,
    SavedDirectory,
    StrayShardWarning,
    as_saved_directory,
    open_safetensors,
)
from tensorkeep.kinds.safetensors._duplicate import different, has_duplicate
from tensorkeep.kinds.safetensors._examine import read_index
from tensorkeep.kinds.safetensors._file import TensorFile, file_over, load, open_file
from tensorkeep.kinds.safetensors._kind import SAFETENSORS
from tensorkeep.kinds.safetensors._saved import SavedTensors
from tensorkeep.kinds.safetensors._strays import strays_beside
from tensorkeep.kinds.safetensors._tied import refuse_copies
from tensorkeep.kinds.safetensors._verify import check_files

__all__ = [
    "SAFETENSORS",
    "Checkpoint",
    "SavedDirectory",
    "SavedTensors",
    "StrayShardWarning",
    "TensorFile",
    "as_saved_directory",
    "check_files",
    "different",
    "file_over",
    "has_duplicate",
    "load",
    "names_of",
    "open_file",
    "open_safetensors",
    "read_index",
    "refuse_copies",
    "sharing_of",
    "strays_beside",
]
