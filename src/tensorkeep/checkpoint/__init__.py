"""Many files as one checkpoint, in the layout of the Hugging Face libraries.

- `_size`: sizes as people write them, to bytes.
- `_names`: the names of the files.
- `_pieces`: tensors that are larger than a shard, in pieces.
- `_plan`: which tensor goes into which file.
- `_index`: the index: which tensor stands in which file, and by what to know these files.
- `_pieced`: the index of files that several writers made. Pure.
- `_location`: which files a path stands for.
- `_findings`: what is wrong with a checkpoint.
- `_examine`: index and headers held against each other.
- `_settle`: a checkpoint read as one, though a save may replace it meanwhile.
- `_checkpoint`: a checkpoint of safetensors files as one mapping.
- `_open`: whatever stands at a path, opened.
- `workers`: work done side by side, which stops as a whole.
- `_rows`: some rows of a tensor that is to be written.
- `_sha256`: the name that Git LFS and the Hub give to a file.
- `_contents`: what the files of a save hold. Pure.
- `_sending`: files of a save on their way to a store.
- `_store_switch`: from the checkpoint that stands in a store to a new one.
- `_upload`: a save of one process to a store.
- `_switch`: from the files of an old checkpoint to those of a new one.
- `_save`: tensors to a directory, in one transaction.
- `_joint_plan`: which files several processes write together. Pure.
- `_joint`: a checkpoint that several processes write together.
- `_joint_upload`: a checkpoint that several processes send to a store together.
- `_reuse`: files that would be what they were before, linked and not written.
- `_snapshot`: a copy of tensors, in memory that is used again.
- `_background`: saves that go on in the background, one after another for each place.
- `_save_async`: what is saved in the background, and how.
- `_reshard`: finished checkpoints written anew, or several as one.
- `_pickle_location`: which files of pickles a path stands for.
- `_pickle_set`: several files of pickles as one checkpoint.
- `_rank_boxes`, `_ranks`: what each of many ranks would read.
- `rewriting`: finished checkpoints put together, chosen from, changed and checked.
- `_change`: a finished checkpoint, held open for a change.
- `_edit`: its names and metadata, changed without a copy of its data.
- `_add_sha256`: the SHA-256 of its shards, written into its index.
- `archive_sums`: the CRC-32 that torch's archives have of storages.
- `_state_check`: what files say of a state, held against the tensors that they have.
- `_verify_tensors`, `_verify_pickled`: whether every byte of files of one kind is the one that was saved.
- `_verify_distributed`: whether what many ranks wrote is whole.
- `_manifest`: the files of a directory that were saved together, and by what to know each.
- `_verify_folder`: a directory held against its manifest.
- `_folder`: a directory with any files in it, saved as one.
- `_verify`: whatever stands at a path, verified.
- `_compare`: two tensors of one shape, number by number.
- `_state_diff`: what is different in two states besides the elements of tensors.
- `_diff`: what is different in two checkpoints.
"""

from tensorkeep.checkpoint._add_sha256 import add_sha256
from tensorkeep.checkpoint._background import SaveHandle
from tensorkeep.checkpoint._checkpoint import Checkpoint, StrayShardWarning, open_safetensors
from tensorkeep.checkpoint._compare import have_equal_bytes
from tensorkeep.checkpoint._diff import Diff, TensorDiff, diff
from tensorkeep.checkpoint._edit import edit
from tensorkeep.checkpoint._examine import Access, header_digest, read_index
from tensorkeep.checkpoint._findings import Finding, Verification, refuse
from tensorkeep.checkpoint._folder import save_folder
from tensorkeep.checkpoint._index import Index, ShardRecord, emit_index, parse_index
from tensorkeep.checkpoint._joint import JointSave, Place
from tensorkeep.checkpoint._joint_plan import JointPlan, plan_pieces, plan_whole
from tensorkeep.checkpoint._joint_upload import JointUpload
from tensorkeep.checkpoint._location import Location, locate
from tensorkeep.checkpoint._manifest import MANIFEST, FileRecord, parse_manifest
from tensorkeep.checkpoint._names import (
    index_name,
    index_names,
    is_plain,
    shard_name,
    stem_of_index,
    stem_of_weights,
    weights_name,
)
from tensorkeep.checkpoint._open import load, open_checkpoint
from tensorkeep.checkpoint._pickle_location import (
    PickleLocation,
    find_pickled,
    pickle_index_names,
    stem_of_pickle_index,
)
from tensorkeep.checkpoint._pickle_set import PickleSet, open_pickled
from tensorkeep.checkpoint._pieced import PiecedTensor, index_of_pieces, piece_name
from tensorkeep.checkpoint._pieces import Piece, TensorSize
from tensorkeep.checkpoint._plan import Shard, ShardPlan, plan_from_layout, plan_shards
from tensorkeep.checkpoint._rank_boxes import StoredPart
from tensorkeep.checkpoint._ranks import RankPlan, RankReads, parts_of, sharded_along
from tensorkeep.checkpoint._reshard import merge, reshard
from tensorkeep.checkpoint._save import refuse_file_name, save_checkpoint, write_checkpoint
from tensorkeep.checkpoint._save_async import save_async, save_in_background
from tensorkeep.checkpoint._sending import Sending, SentFile, take_back
from tensorkeep.checkpoint._sha256 import sha256_of
from tensorkeep.checkpoint._size import parse_size
from tensorkeep.checkpoint._snapshot import release_snapshots
from tensorkeep.checkpoint._state_diff import DataDiff
from tensorkeep.checkpoint._switch import switch_to
from tensorkeep.checkpoint._verify import verify
from tensorkeep.checkpoint._verify_folder import digest_of_file, has_manifest, read_manifest, verify_folder

__all__ = [
    "MANIFEST",
    "Access",
    "Checkpoint",
    "DataDiff",
    "Diff",
    "FileRecord",
    "Finding",
    "Index",
    "JointPlan",
    "JointSave",
    "JointUpload",
    "Location",
    "PickleLocation",
    "PickleSet",
    "Piece",
    "PiecedTensor",
    "Place",
    "RankPlan",
    "RankReads",
    "SaveHandle",
    "Sending",
    "SentFile",
    "Shard",
    "ShardPlan",
    "ShardRecord",
    "StoredPart",
    "StrayShardWarning",
    "TensorDiff",
    "TensorSize",
    "Verification",
    "add_sha256",
    "diff",
    "digest_of_file",
    "edit",
    "emit_index",
    "find_pickled",
    "has_manifest",
    "have_equal_bytes",
    "header_digest",
    "index_name",
    "index_names",
    "index_of_pieces",
    "is_plain",
    "load",
    "locate",
    "merge",
    "open_checkpoint",
    "open_pickled",
    "open_safetensors",
    "parse_index",
    "parse_manifest",
    "parse_size",
    "parts_of",
    "pickle_index_names",
    "piece_name",
    "plan_from_layout",
    "plan_pieces",
    "plan_shards",
    "plan_whole",
    "read_index",
    "read_manifest",
    "refuse",
    "refuse_file_name",
    "release_snapshots",
    "reshard",
    "save_async",
    "save_checkpoint",
    "save_folder",
    "save_in_background",
    "sha256_of",
    "shard_name",
    "sharded_along",
    "stem_of_index",
    "stem_of_pickle_index",
    "stem_of_weights",
    "switch_to",
    "take_back",
    "verify",
    "verify_folder",
    "weights_name",
    "write_checkpoint",
]
