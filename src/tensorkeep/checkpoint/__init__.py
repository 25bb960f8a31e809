"""Many files as one checkpoint, in the layout of the Hugging Face libraries.

- `_open`: whatever stands at a path, opened.
- `saving/`: saving many files as one checkpoint.
- `verifying/`: whether every byte is the one that was saved.
- `rewriting/`: existing checkpoints, rewritten: resharded, merged, edited.
- `read_plans/`: what each of many ranks would read.
- `diffing/`: how two checkpoints differ.
"""

from tensorkeep.checkpoint._open import load, open_checkpoint
from tensorkeep.checkpoint.diffing import DataDiff, Diff, TensorDiff, diff, have_equal_bytes
from tensorkeep.checkpoint.read_plans import RankPlan, RankReads, StoredPart, parts_of, sharded_along
from tensorkeep.checkpoint.rewriting import (
    Progress,
    add_sha256,
    changed,
    check_kept_digests,
    digested,
    edit,
    identity_of,
    merge,
    refuse_replaced,
    reshard,
    taken,
    together,
)
from tensorkeep.checkpoint.saving import (
    MultiWriterPlan,
    MultiWriterSave,
    MultiWriterUpload,
    Place,
    SaveHandle,
    Sending,
    UploadedFile,
    commit_to,
    plan_pieces,
    plan_whole,
    refuse_file_name,
    release_snapshots,
    remove_uploaded,
    save_async,
    save_checkpoint,
    save_folder,
    save_in_background,
    write_checkpoint,
)
from tensorkeep.checkpoint.verifying import (
    digest_of_file,
    has_manifest,
    read_manifest,
    sha256_of,
    verify,
    verify_folder,
)
from tensorkeep.kinds.safetensors import StrayShardWarning

__all__ = [
    "DataDiff",
    "Diff",
    "MultiWriterPlan",
    "MultiWriterSave",
    "MultiWriterUpload",
    "Place",
    "Progress",
    "RankPlan",
    "RankReads",
    "SaveHandle",
    "Sending",
    "StoredPart",
    "StrayShardWarning",
    "TensorDiff",
    "UploadedFile",
    "add_sha256",
    "changed",
    "check_kept_digests",
    "commit_to",
    "diff",
    "digest_of_file",
    "digested",
    "edit",
    "has_manifest",
    "have_equal_bytes",
    "identity_of",
    "load",
    "merge",
    "open_checkpoint",
    "parts_of",
    "plan_pieces",
    "plan_whole",
    "read_manifest",
    "refuse_file_name",
    "refuse_replaced",
    "release_snapshots",
    "remove_uploaded",
    "reshard",
    "save_async",
    "save_checkpoint",
    "save_folder",
    "save_in_background",
    "sha256_of",
    "sharded_along",
    "taken",
    "together",
    "verify",
    "verify_folder",
    "write_checkpoint",
]
