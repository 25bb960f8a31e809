"""PyTorch's checkpoints as lazy tensors and nested data. Nothing of a file is run.

- `_records`: what a pickle says of a tensor, as a `LazyTensor`; its arrays, as arrays of NumPy.
- `_keys`: keys of dicts as parts of names.
- `_flat`: all tensors of a nested value by dotted names.
- `_tree`: a nested value with something else in the place of its tensors.
- `_load`: the nested value with tensors that share memory where they did.
- `_file`: `PickleFile` and `open_pickle`.
"""

from tensorkeep.pickled._file import PickledTensors, PickleFile, open_pickle, pickle_over
from tensorkeep.pickled._flat import MODULE_PARTS, is_module
from tensorkeep.pickled._keys import PLAIN, joined, key_text
from tensorkeep.pickled._records import array_of

__all__ = [
    "MODULE_PARTS",
    "PLAIN",
    "PickleFile",
    "PickledTensors",
    "array_of",
    "is_module",
    "joined",
    "key_text",
    "open_pickle",
    "pickle_over",
]
