"""TensorFlow's checkpoints: an index, and data files with the bytes of tensors. And its programs, for `scan`.

- `_bundle`: `read_bundle`, which tensors an index lists, and where their bytes are.
- `_table`: the file of an index: sorted keys and values in blocks.
- `_emit`: writes such an index.
- `_snappy`: how blocks may be compressed.
- `_entries`: the values of an index.
- `_slice_keys`: the keys of parts of tensors.
- `_dtypes`: TensorFlow's dtypes.
- `_narrow`: numbers of 4 and 2 bits.
- `_names`: readable names of tensors.
- `_object_graph`: the objects that were saved.
- `_emit_objects`: describes variables as such objects.
- `_strings`: tensors of strings.
- `programs/`: which operators of a program do more than compute.
- `_paths`: the file names of a checkpoint, and the file that says which one is the latest.
"""

from tensorkeep.formats.tensorflow._bundle import Bundle, BundledTensor, Part, read_bundle
from tensorkeep.formats.tensorflow._dtypes import BY_NUMBER, NUMBERS, STRING, ForeignDType
from tensorkeep.formats.tensorflow._emit import emit_index
from tensorkeep.formats.tensorflow._emit_objects import emit_object_graph, emit_string
from tensorkeep.formats.tensorflow._names import OBJECT_GRAPH_KEY, key_of, names_of
from tensorkeep.formats.tensorflow._narrow import WidenedSource
from tensorkeep.formats.tensorflow._object_graph import ObjectGraph, parse_object_graph
from tensorkeep.formats.tensorflow._paths import (
    INDEX_SUFFIX,
    MAX_STATE_NBYTES,
    STATE_FILE,
    data_name,
    is_data_name,
    latest_in,
    stem_of,
)
from tensorkeep.formats.tensorflow._strings import parse_strings, string_crc
from tensorkeep.formats.tensorflow._table import is_table

__all__ = [
    "BY_NUMBER",
    "INDEX_SUFFIX",
    "MAX_STATE_NBYTES",
    "NUMBERS",
    "OBJECT_GRAPH_KEY",
    "STATE_FILE",
    "STRING",
    "Bundle",
    "BundledTensor",
    "ForeignDType",
    "ObjectGraph",
    "Part",
    "WidenedSource",
    "data_name",
    "emit_index",
    "emit_object_graph",
    "emit_string",
    "is_data_name",
    "is_table",
    "key_of",
    "latest_in",
    "names_of",
    "parse_object_graph",
    "parse_strings",
    "read_bundle",
    "stem_of",
    "string_crc",
]
