"""What names in pickles mean: the closed table of those that stand for data, and the list of dangerous ones.

- `_table`: the closed table: name to the function of ours that a call is replaced by.
- `_python`: its names from Python's library.
- `_numpy`: its names from NumPy and ml_dtypes.
- `_paddle`: how PaddlePaddle writes tensors.
- `_torch`: its names from torch.
- `_torch_labels`: torch's constants, as texts.
- `_torch_strided`: storages, and views that lie inside them.
- `_danger_list`: names known to do harm: an alarm, never the defence.
"""

from tensorkeep.formats.pickles.names._danger_list import Danger, danger_of, danger_of_call
from tensorkeep.formats.pickles.names._numpy import itemsize_of, set_array_state, set_dtype_state, starts_array
from tensorkeep.formats.pickles.names._paddle import paddle_array
from tensorkeep.formats.pickles.names._python import EMPTY_WHEN_NEW, FUNCTIONS, HASHING
from tensorkeep.formats.pickles.names._table import known_name, python3_name
from tensorkeep.formats.pickles.names._torch_strided import STORAGE_DTYPES, storage_of, strided_tensor

__all__ = [
    "EMPTY_WHEN_NEW",
    "FUNCTIONS",
    "HASHING",
    "STORAGE_DTYPES",
    "Danger",
    "danger_of",
    "danger_of_call",
    "itemsize_of",
    "known_name",
    "paddle_array",
    "python3_name",
    "set_array_state",
    "set_dtype_state",
    "starts_array",
    "storage_of",
    "strided_tensor",
]
