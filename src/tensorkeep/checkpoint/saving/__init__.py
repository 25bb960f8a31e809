"""Saving many files as one checkpoint: plan, stage every file, commit.

- `_options`: `SaveOptions`, the arguments of a save as one value.
- `_plan`: which files a save writes, and the index over them.
- `_destination`: where a save goes, as a protocol; what it promises.
- `_directory_destination`: a directory, by one transaction.
- `_reserved_files`: reserved files of a directory, as one process fills them.
- `_index_text`: the text of the index, encrypted where its files are.
- `_upload`: shards on their way to a store.
- `_store_destination`: a store, by unique names and one conditional write.
- `_removal`: what a save removes of the old checkpoint.
- `_reuse`: files of an older checkpoint that are linked and not written again.
- `_by_executor`: files that the workers of an executor fill.
- `_save`: `save_checkpoint`.
- `_snapshot`: a copy of tensors, in memory that is used again.
- `_save_queue`: background saves, one after another for each directory.
- `_save_async`: `save_async`.
- `_folder`: a directory with any files in it, saved as one.
"""

from tensorkeep.checkpoint.saving._destination import Destination, destination_of, refuse_file_name
from tensorkeep.checkpoint.saving._directory_destination import (
    DirectoryDestination,
    Place,
    Reservation,
    commit_files,
)
from tensorkeep.checkpoint.saving._folder import save_folder
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan, plan_pieces, plan_whole
from tensorkeep.checkpoint.saving._removal import FileNames, OldFiles
from tensorkeep.checkpoint.saving._reserved_files import Beat, ReservedFiles, write_all
from tensorkeep.checkpoint.saving._save import save_checkpoint, stage_all, write_checkpoint
from tensorkeep.checkpoint.saving._save_async import save_async, save_in_background
from tensorkeep.checkpoint.saving._save_queue import SaveHandle, raise_earlier
from tensorkeep.checkpoint.saving._snapshot import release_snapshots
from tensorkeep.checkpoint.saving._store_destination import ExistingIndex, StoreDestination, existing_index
from tensorkeep.checkpoint.saving._upload import UploadedFile, UploadSpec, remove_objects

__all__ = [
    "Beat",
    "Destination",
    "DirectoryDestination",
    "ExistingIndex",
    "FileNames",
    "OldFiles",
    "Place",
    "Reservation",
    "ReservedFiles",
    "SaveHandle",
    "SaveOptions",
    "SavePlan",
    "StoreDestination",
    "UploadSpec",
    "UploadedFile",
    "commit_files",
    "destination_of",
    "existing_index",
    "plan_pieces",
    "plan_whole",
    "raise_earlier",
    "refuse_file_name",
    "release_snapshots",
    "remove_objects",
    "save_async",
    "save_checkpoint",
    "save_folder",
    "save_in_background",
    "stage_all",
    "write_all",
    "write_checkpoint",
]
