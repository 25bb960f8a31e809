"""Files and directories that appear whole or not at all.

- `_sink`: the sink over a file that is being written.
- `_sparse_file`: a file that is filled here and there.
- `_reserved`: a file that several processes fill.
- `_target`: what stands where a new file is to go.
- `_link`: a file that gets one more name.
- `_file`: a file that appears complete or not at all.
- `_journal`: a set of files that changes at once or not at all.
- `_lock`: a set of files that changes at once or not at all.
- `_staging`: a set of files that changes at once or not at all.
- `_transaction`: a set of files that changes at once or not at all.
- `_directory`: a whole directory that appears complete or not at all.
- `_removal`: directories that are removed safely: the name first, then the files.
- `_recovery`: such a change that a dead process left unfinished, finished or read past.
"""

from tensorkeep.transport.atomic._directory import publish_directory, recover_directories
from tensorkeep.transport.atomic._file import publish, sweep_leftovers
from tensorkeep.transport.atomic._lock import DirectoryLock, take_lock
from tensorkeep.transport.atomic._recovery import PendingCommit, finish_pending_commit
from tensorkeep.transport.atomic._removal import delete_directory, delete_moved_aside, move_aside
from tensorkeep.transport.atomic._reserved import Reserved, ReservedFile
from tensorkeep.transport.atomic._sparse_file import PartialFile
from tensorkeep.transport.atomic._staging import has_staging
from tensorkeep.transport.atomic._transaction import Transaction, transaction

__all__ = [
    "DirectoryLock",
    "PartialFile",
    "PendingCommit",
    "Reserved",
    "ReservedFile",
    "Transaction",
    "delete_directory",
    "delete_moved_aside",
    "finish_pending_commit",
    "has_staging",
    "move_aside",
    "publish",
    "publish_directory",
    "recover_directories",
    "sweep_leftovers",
    "take_lock",
    "transaction",
]
