"""Files, sets of files and directories that appear whole or not at all.

How one set of files replaces another, in reading order; a process may be killed in any step:

1. `_transaction.transaction` enters the staging directory `.model.tensorkeep-staging/` (`_working_directory`,
   `_lock`), and finishes or removes what a dead writer left there.
2. `Transaction.file` writes each new file into it (`_target`, `_sink`), or gives an existing file one more name
   (`_link`), or reserves a file for several processes (`_reserved`). Each is synced. Nothing outside has changed.
3. `Transaction.commit` writes the journal of the changes (`_journal`, `_staging.write_journal`). Its rename to
   `commit.json` **is the commit**: killed before it, the old set counts; killed after it, the new one.
4. `Staging.replay` syncs the journal's name, renames the new files to their places, the index last, and syncs these
   names. Then it removes what only the old set had, and empties the staging directory, the journal first. Each step
   can be repeated, so any process can finish it.
5. `_recovery` is the reader's side: a reader that finds a journal finishes it, or reads the staged files in place.

A power cut can lose or reorder whatever is not synced, so order alone protects nothing. The two syncs of step 4 do:
while any file of the new set may be in its place and any other not, the journal is on the disk.

Two simpler cases: a single file is staged and renamed (`_file`), and a whole directory is swapped (`_directory`).

- `_target`: what exists under the name of a new file.
- `_sink`: writes an open file, and takes over the mode of the one it replaces.
- `_file`: one file that appears whole or not at all.
- `_lock`: one writer at a time: the kernel's lock, or a lock file that names its owner.
- `_working_directory`: a hidden directory that a writer makes, locks and leaves.
- `_journal`: the journal of a transaction. Pure.
- `_staging`: the staging directory of a transaction: commit, replay, edits in place.
- `_link`: another name for an existing file.
- `_reserved`: a file of a known size that several processes fill.
- `_recovery`: a committed transaction that a dead process left unfinished.
- `_transaction`: a set of files that changes at once.
- `_directory`: a whole directory that appears at once.
- `_dependents`: signatures, which go when what they name changes.
- `_removal`: directories that are removed safely: the name first, then the files.
- `_sparse_file`: a file that several threads fill in any order.
- `_spool`: a temporary file, for bytes that are made once and sent perhaps several times.
"""

from tensorkeep.transport.atomic._dependents import dependents_of
from tensorkeep.transport.atomic._directory import publish_directory, recover_directories
from tensorkeep.transport.atomic._file import publish, sweep_leftovers
from tensorkeep.transport.atomic._lock import DirectoryLock, take_lock
from tensorkeep.transport.atomic._recovery import PendingCommit, finish_pending_commit, has_commit
from tensorkeep.transport.atomic._removal import delete_directory, delete_moved_aside, move_aside
from tensorkeep.transport.atomic._reserved import Reserved, ReservedFile
from tensorkeep.transport.atomic._sparse_file import PartialFile
from tensorkeep.transport.atomic._spool import Spool
from tensorkeep.transport.atomic._staging import has_staging
from tensorkeep.transport.atomic._transaction import Transaction, transaction
from tensorkeep.transport.atomic._working_directory import enter_working_directory, leave_working_directory

__all__ = [
    "DirectoryLock",
    "PartialFile",
    "PendingCommit",
    "Reserved",
    "ReservedFile",
    "Spool",
    "Transaction",
    "delete_directory",
    "delete_moved_aside",
    "dependents_of",
    "enter_working_directory",
    "finish_pending_commit",
    "has_commit",
    "has_staging",
    "leave_working_directory",
    "move_aside",
    "publish",
    "publish_directory",
    "recover_directories",
    "sweep_leftovers",
    "take_lock",
    "transaction",
]
