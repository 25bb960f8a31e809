"""PyTorch's checkpoints as lazy tensors and nested data. Nothing of a file is run.

- `_records`: what a pickle says of a tensor, as a `LazyTensor`; its arrays, as arrays of NumPy.
- `_keys`: keys of dicts as parts of names.
- `_flat`: all tensors of a nested value by dotted names.
- `_tree`: a nested value with something else in the place of its tensors.
- `_load`: the nested value with tensors that share memory where they did.
- `_data`: the nested value as data that a file of tensors can say.
- `_views`: where its tensors are stored.
- `_file`: `PickleFile` and `open_pickle`.
- `_in_files`: what a conversion asks of several pickles.
- `_location`: which files of pickles a path stands for.
- `_set`: several files of pickles as one checkpoint.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.pickles._data import nested_data, taken_apart
from tensorkeep.kinds.pickles._file import PickleFile, open_pickle, pickle_file_of, pickle_over
from tensorkeep.kinds.pickles._in_files import left_out_of, pairs_of, records_of, refuse_expanded_of, views_of
from tensorkeep.kinds.pickles._keys import key_text, numbered
from tensorkeep.kinds.pickles._kind import PICKLES
from tensorkeep.kinds.pickles._location import PickleLocation, find_pickled, pickle_index_names, stem_of_pickle_index
from tensorkeep.kinds.pickles._records import lazy_array, lazy_record
from tensorkeep.kinds.pickles._set import PickleSet, open_pickled

__all__ = [
    "PICKLES",
    "PickleFile",
    "PickleLocation",
    "PickleSet",
    "find_pickled",
    "key_text",
    "lazy_array",
    "lazy_record",
    "left_out_of",
    "nested_data",
    "numbered",
    "open_pickle",
    "open_pickled",
    "pairs_of",
    "pickle_file_of",
    "pickle_index_names",
    "pickle_over",
    "records_of",
    "refuse_expanded_of",
    "stem_of_pickle_index",
    "taken_apart",
    "views_of",
]
