"""Which file holds which tensor? File names, the index, shards and pieces.

- `_size`: "5GB" in bytes.
- `_file_names`: the names of shards and of the index.
- `_pieces`: tensors that are split over several files.
- `_shard_plan`: which tensor goes into which file.
- `_removed`: what takes the place of an index while its checkpoint is being removed.
- `_index`: the index: the file of each tensor, and the size and digests of each file.
- `_rank_set`: checkpoints of ranks that each read their own files.
- `_piece_index`: the index of a checkpoint that several processes wrote.
- `_location`: which files a path refers to. The only file here that is not pure.
- `_step_number`: the numbers of steps.
- `_manifest`: the files of a directory that were saved together, with their digests.
"""

from tensorkeep.layout._file_names import (
    blocks_name,
    index_name,
    index_names,
    renamed_shard,
    shard_name,
    stem_of_index,
    stem_of_weights,
    weights_name,
)
from tensorkeep.layout._index import STEP_KEY, Index, ShardRecord, emit_index, parse_index
from tensorkeep.layout._location import Location, locate
from tensorkeep.layout._manifest import MANIFEST, FileRecord, emit_manifest, parse_manifest
from tensorkeep.layout._piece_index import PiecedTensor, index_of_pieces, piece_name
from tensorkeep.layout._pieces import Piece, TensorSize, pieces_in_order, reach_of
from tensorkeep.layout._rank_set import (
    RANK_SET,
    SHARE_KEY,
    RankPart,
    RankSet,
    RankShare,
    emit_rank_set,
    parse_rank_set,
    parse_share,
    rank_directory,
)
from tensorkeep.layout._removed import emit_removed, parse_removed
from tensorkeep.layout._shard_plan import Shard, ShardPlan, plan_from_layout, plan_shards
from tensorkeep.layout._size import parse_size
from tensorkeep.layout._step_number import checked_step

__all__ = [
    "MANIFEST",
    "RANK_SET",
    "SHARE_KEY",
    "STEP_KEY",
    "FileRecord",
    "Index",
    "Location",
    "Piece",
    "PiecedTensor",
    "RankPart",
    "RankSet",
    "RankShare",
    "Shard",
    "ShardPlan",
    "ShardRecord",
    "TensorSize",
    "blocks_name",
    "checked_step",
    "emit_index",
    "emit_manifest",
    "emit_rank_set",
    "emit_removed",
    "index_name",
    "index_names",
    "index_of_pieces",
    "locate",
    "parse_index",
    "parse_manifest",
    "parse_rank_set",
    "parse_removed",
    "parse_share",
    "parse_size",
    "piece_name",
    "pieces_in_order",
    "plan_from_layout",
    "plan_shards",
    "rank_directory",
    "reach_of",
    "renamed_shard",
    "shard_name",
    "stem_of_index",
    "stem_of_weights",
    "weights_name",
]
