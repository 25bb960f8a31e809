"""Safetensors files: one, or an index and its shards.

- `_aliases`: tensors that are views of others in their file, each readable alone.
- `_tied`: whole tensors loaded so that those that shared memory share it again.
- `_attributes`: what an array library keeps beside elements, given back to tensors that were loaded.
- `_saved`: `SavedTensors`, open safetensors files and the state that they hold.
- `_file`: `TensorFile`, a read-only mapping of name to lazy tensor, and `open_file`.
- `_examine`: the index and all headers, compared with each other.
- `_consistent_read`: a checkpoint read as one, though a save may replace it meanwhile.
- `_checkpoint`: `Checkpoint`, the tensors of all shards as one mapping.
- `_digests`: the checks that the files carry.
- `_verify`: what can be checked, also of files that are too damaged to be opened.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.safetensors._aliases import names_of, sharing_of
from tensorkeep.kinds.safetensors._checkpoint import Checkpoint, StrayShardWarning, open_safetensors, with_index
from tensorkeep.kinds.safetensors._examine import header_digest, read_index
from tensorkeep.kinds.safetensors._file import TensorFile, file_over, load, open_file
from tensorkeep.kinds.safetensors._kind import SAFETENSORS
from tensorkeep.kinds.safetensors._saved import SavedTensors
from tensorkeep.kinds.safetensors._verify import check_files

__all__ = [
    "SAFETENSORS",
    "Checkpoint",
    "SavedTensors",
    "StrayShardWarning",
    "TensorFile",
    "check_files",
    "file_over",
    "header_digest",
    "load",
    "names_of",
    "open_file",
    "open_safetensors",
    "read_index",
    "sharing_of",
    "with_index",
]
