"""Many files as one checkpoint, in the layout of the Hugging Face libraries.

- `_open`: opens and loads what is at a path.
- `_keywords`: the arguments that both take. Pure.
- `_materialize`: nested data with lazy tensors, and the same with tensors.
- `saving/`: saving many files as one checkpoint.
- `ranks/`: many processes that save one checkpoint together.
- `verifying/`: whether every byte is the one that was saved.
- `rewriting/`: existing checkpoints, rewritten: resharded, merged, edited.
- `read_plans/`: what each of many ranks would read.
- `diffing/`: how two checkpoints differ.
"""

from tensorkeep.checkpoint._materialize import materialize
from tensorkeep.checkpoint._open import load, needs_conversion, open_checkpoint, read_consistently
from tensorkeep.checkpoint.diffing import DataDiff, Diff, TensorDiff, diff, have_equal_bytes
from tensorkeep.checkpoint.ranks import (
    FillAssignment,
    KeyValues,
    Part,
    PartToWrite,
    PlannedTensor,
    RankedTensors,
    RankSave,
    Rendezvous,
    write_parts,
)
from tensorkeep.checkpoint.read_plans import RankPlan, RankReads, StoredPart, parts_of, sharded_along
from tensorkeep.checkpoint.rewriting import (
    Progress,
    RewriteOptions,
    add_sha256,
    check_replaced,
    concatenate,
    destination_exists,
    digests_to_replace,
    edit,
    identity_of,
    merge,
    refuse_existing,
    refuse_replaced,
    reshard,
    select_and_drop,
    transform,
)
from tensorkeep.checkpoint.saving import (
    Destination,
    DirectoryDestination,
    FileNames,
    Place,
    Reservation,
    SaveHandle,
    SaveOptions,
    SavePlan,
    StoreDestination,
    UploadedFile,
    UploadSpec,
    commit_files,
    destination_of,
    plan_pieces,
    plan_whole,
    refuse_file_name,
    release_snapshots,
    remove_objects,
    save_async,
    save_checkpoint,
    save_folder,
    save_in_background,
    write_checkpoint,
)
from tensorkeep.checkpoint.verifying import (
    digest_of_file,
    find_damage,
    sha256_of,
    verify,
    verify_folder,
)
from tensorkeep.kinds.safetensors import StrayShardWarning

__all__ = [
    "DataDiff",
    "Destination",
    "Diff",
    "DirectoryDestination",
    "FileNames",
    "FillAssignment",
    "KeyValues",
    "Part",
    "PartToWrite",
    "Place",
    "PlannedTensor",
    "Progress",
    "RankPlan",
    "RankReads",
    "RankSave",
    "RankedTensors",
    "Rendezvous",
    "Reservation",
    "RewriteOptions",
    "SaveHandle",
    "SaveOptions",
    "SavePlan",
    "StoreDestination",
    "StoredPart",
    "StrayShardWarning",
    "TensorDiff",
    "UploadSpec",
    "UploadedFile",
    "add_sha256",
    "check_replaced",
    "commit_files",
    "concatenate",
    "destination_exists",
    "destination_of",
    "diff",
    "digest_of_file",
    "digests_to_replace",
    "edit",
    "find_damage",
    "have_equal_bytes",
    "identity_of",
    "load",
    "materialize",
    "merge",
    "needs_conversion",
    "open_checkpoint",
    "parts_of",
    "plan_pieces",
    "plan_whole",
    "read_consistently",
    "refuse_existing",
    "refuse_file_name",
    "refuse_replaced",
    "release_snapshots",
    "remove_objects",
    "reshard",
    "save_async",
    "save_checkpoint",
    "save_folder",
    "save_in_background",
    "select_and_drop",
    "sha256_of",
    "sharded_along",
    "transform",
    "verify",
    "verify_folder",
    "write_checkpoint",
    "write_parts",
]
