"""Saving many files as one checkpoint.

- `_row_slices`: some rows of a tensor that is to be written.
- `_shard_contents`: what the files of a save hold. Pure.
- `_shard_upload`: files of a save on their way to a store.
- `_remote_commit`: from the checkpoint that stands in a store to a new one.
- `_remote_save`: a save of one process to a store.
- `_local_commit`: from the files of an old checkpoint to those of a new one.
- `_save`: tensors to a directory, in one transaction.
- `_multi_writer_plan`: which files several processes write together. Pure.
- `_multi_writer_save`: a checkpoint that several processes write together.
- `_multi_writer_upload`: a checkpoint that several processes send to a store together.
- `_reuse`: files that would be what they were before, linked and not written.
- `_snapshot`: a copy of tensors, in memory that is used again.
- `_save_queue`: saves that go on in the background, one after another for each place.
- `_save_async`: what is saved in the background, and how.
- `_folder`: a directory with any files in it, saved as one.
"""

from tensorkeep.checkpoint.saving._folder import save_folder
from tensorkeep.checkpoint.saving._local_commit import commit_to
from tensorkeep.checkpoint.saving._multi_writer_plan import MultiWriterPlan, plan_pieces, plan_whole
from tensorkeep.checkpoint.saving._multi_writer_save import MultiWriterSave, Place
from tensorkeep.checkpoint.saving._multi_writer_upload import MultiWriterUpload
from tensorkeep.checkpoint.saving._save import refuse_file_name, save_checkpoint, write_checkpoint
from tensorkeep.checkpoint.saving._save_async import save_async, save_in_background
from tensorkeep.checkpoint.saving._save_queue import SaveHandle
from tensorkeep.checkpoint.saving._shard_upload import Sending, UploadedFile, remove_uploaded
from tensorkeep.checkpoint.saving._snapshot import release_snapshots

__all__ = [
    "MultiWriterPlan",
    "MultiWriterSave",
    "MultiWriterUpload",
    "Place",
    "SaveHandle",
    "Sending",
    "UploadedFile",
    "commit_to",
    "plan_pieces",
    "plan_whole",
    "refuse_file_name",
    "release_snapshots",
    "remove_uploaded",
    "save_async",
    "save_checkpoint",
    "save_folder",
    "save_in_background",
    "write_checkpoint",
]
