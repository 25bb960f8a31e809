"""One open file.

- `_aliases`: tensors that are views of others in their file, each readable alone.
- `_tied`: whole tensors loaded so that those that shared memory share it again.
- `_attributes`: what an array library keeps beside elements, given back to tensors that were loaded.
- `_saved`: `SavedTensors`, open safetensors files and the state that they hold.
- `_file`: `TensorFile`, a read-only mapping of name to lazy tensor, and `open_file`.
"""

from tensorkeep.tensors.files._aliases import names_of, sharing_of
from tensorkeep.tensors.files._file import TensorFile, file_over, load, open_file
from tensorkeep.tensors.files._saved import SavedTensors
from tensorkeep.tensors.files._tied import Ties, check_ties

__all__ = [
    "SavedTensors",
    "TensorFile",
    "Ties",
    "check_ties",
    "file_over",
    "load",
    "names_of",
    "open_file",
    "sharing_of",
]
