"""The closed table of names that are data.

- `_table`: the closed table of names that are known to be data, and what is done where such a name is called.
- `_python`: the closed table of names that are known to be data, and what is done where such a name is called.
- `_numpy`: the closed table of names that are known to be data, and what is done where such a name is called.
- `_torch`: the closed table of names that are known to be data, and what is done where such a name is called.
- `_torch_labels`: torch's constants; its storages, and views that lie inside of them.
- `_torch_strided`: torch's constants; its storages, and views that lie inside of them.
- `_danger_list`: names that are known to do harm: an alarm, never the defence.
"""

from tensorkeep.formats.pickles.names._danger_list import Danger, danger_of, danger_of_call
from tensorkeep.formats.pickles.names._numpy import set_array_state, set_dtype_state
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
    "known_name",
    "python3_name",
    "set_array_state",
    "set_dtype_state",
    "storage_of",
    "strided_tensor",
]
