"""GGUF, the files of llama.cpp and its relatives: keys with values of any type, and tensors, most of them quantized.

- `_read`: `parse_gguf`.
- `_window`: the start of a file, read in growing pieces.
- `_values`: keys and values as plain data.
- `_tensors`: where the tensors are.
- `_types`: the element types of ggml.
- `_shards`: several files as one.
- `_record`: a header as text metadata, and back.
- `_emit`: the header of a file to write.
"""

from tensorkeep.formats.gguf._emit import emit_header, padded
from tensorkeep.formats.gguf._read import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, GgufContents, parse_gguf
from tensorkeep.formats.gguf._record import (
    RECORD_KEY,
    GgufRecord,
    emit_record,
    parse_record,
    parse_texts,
    record_texts,
)
from tensorkeep.formats.gguf._shards import join_shards, n_shards, shard_names, stem_of_shard
from tensorkeep.formats.gguf._tensors import TensorInfo
from tensorkeep.formats.gguf._types import GGML_TYPES, GGML_TYPES_BY_NAME, RETIRED_TYPES, GgmlType, UnknownType

__all__ = [
    "ALIGNMENT_KEY",
    "DEFAULT_ALIGNMENT",
    "GGML_TYPES",
    "GGML_TYPES_BY_NAME",
    "MAGIC",
    "RECORD_KEY",
    "RETIRED_TYPES",
    "GgmlType",
    "GgufContents",
    "GgufRecord",
    "TensorInfo",
    "UnknownType",
    "emit_header",
    "emit_record",
    "join_shards",
    "n_shards",
    "padded",
    "parse_gguf",
    "parse_record",
    "parse_texts",
    "record_texts",
    "shard_names",
    "stem_of_shard",
]
