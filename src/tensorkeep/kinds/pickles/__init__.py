"""PyTorch's pickles as lazy tensors and nested data. Nothing in a file is run.

- `_records`: records in a pickle as lazy tensors and NumPy arrays, and where tensors are stored.
- `_keys`: dotted names.
- `_flat`: all tensors of a nested value by dotted name.
- `_tree`: copies a nested value with its records of tensors replaced.
- `_select`: a part of a nested value.
- `_load`: loads a nested value with its tensors.
- `_ties`: loads each tensor into its own memory, or refuses tensors that share it.
- `_data`: a nested value as data that a safetensors file can hold.
- `_nested`: what a file and a set of files have in common.
- `_file`: `PickleFile`.
- `_open`: opens one.
- `_in_files`: what a conversion needs from several pickles.
- `_location`: finds the files for a path.
- `_set`: `PickleSet`, several files as one checkpoint.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.pickles._data import nested_data, nodes_of, taken_apart
from tensorkeep.kinds.pickles._file import PickleFile
from tensorkeep.kinds.pickles._in_files import left_out_of, pairs_of, records_of, refuse_expanded_of, views_of
from tensorkeep.kinds.pickles._keys import key_text, numbered
from tensorkeep.kinds.pickles._kind import PICKLES
from tensorkeep.kinds.pickles._location import PickleLocation, find_pickled, pickle_index_names, stem_of_pickle_index
from tensorkeep.kinds.pickles._open import open_pickle, pickle_file_of, pickle_over
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
    "nodes_of",
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
