"""Which file holds which tensor? File names, the index, shards and pieces.

- `_size`: sizes as people write them, to bytes.
- `_file_names`: the names of the files.
- `_pieces`: tensors that are larger than a shard, in pieces.
- `_shard_plan`: which tensor goes into which file.
- `_index`: the index: which tensor stands in which file, and by what to know these files.
- `_piece_index`: the index of files that several writers made. Pure.
- `_location`: which files a path stands for.
- `_manifest`: the files of a directory that were saved together, and by what to know each.
"""

from tensorkeep.layout._file_names import (
    index_name,
    index_names,
    is_plain,
    renamed_shard,
    shard_name,
    stem_of_index,
    stem_of_weights,
    weights_name,
)
from tensorkeep.layout._index import Index, ShardRecord, emit_index, parse_index
from tensorkeep.layout._location import Location, locate
from tensorkeep.layout._manifest import MANIFEST, FileRecord, emit_manifest, parse_manifest
from tensorkeep.layout._piece_index import PiecedTensor, index_of_pieces, piece_name
from tensorkeep.layout._pieces import Piece, TensorSize, pieces_in_order, reach_of
from tensorkeep.layout._shard_plan import Shard, ShardPlan, plan_from_layout, plan_shards
from tensorkeep.layout._size import parse_size

__all__ = [
    "MANIFEST",
    "FileRecord",
    "Index",
    "Location",
    "Piece",
    "PiecedTensor",
    "Shard",
    "ShardPlan",
    "ShardRecord",
    "TensorSize",
    "emit_index",
    "emit_manifest",
    "index_name",
    "index_names",
    "index_of_pieces",
    "is_plain",
    "locate",
    "parse_index",
    "parse_manifest",
    "parse_size",
    "piece_name",
    "pieces_in_order",
    "plan_from_layout",
    "plan_shards",
    "reach_of",
    "renamed_shard",
    "shard_name",
    "stem_of_index",
    "stem_of_weights",
    "weights_name",
]
