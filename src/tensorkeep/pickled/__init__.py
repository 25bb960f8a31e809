"""PyTorch's checkpoints as lazy tensors and nested data. Nothing of a file is run.

- `_records`: what a pickle says of a tensor, as a `LazyTensor`; its arrays, as arrays of NumPy.
- `_keys`: keys of dicts as parts of names.
- `_flat`: all tensors of a nested value by dotted names.
- `_tree`: a nested value with something else in the place of its tensors.
- `_load`: the nested value with tensors that share memory where they did.
- `_data`: the nested value as data that a file of tensors can say.
- `_file`: `PickleFile` and `open_pickle`.
"""

from tensorkeep.pickled._data import Data, TensorLeaf, data_of, is_of_pairs, taken_apart
from tensorkeep.pickled._file import PickledTensors, PickleFile, open_pickle, pickle_over
from tensorkeep.pickled._keys import key_text, numbered
from tensorkeep.pickled._records import lazy_array, lazy_record

__all__ = [
    "Data",
    "PickleFile",
    "PickledTensors",
    "TensorLeaf",
    "data_of",
    "is_of_pairs",
    "key_text",
    "lazy_array",
    "lazy_record",
    "numbered",
    "open_pickle",
    "pickle_over",
    "taken_apart",
]
