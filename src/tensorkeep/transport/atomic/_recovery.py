"""A transaction that a dead process committed and did not finish: the next reader finishes it, or reads past it.

A reader that may not write, or finds the lock held, reads the staged files in place.
"""

from __future__ import annotations

import os

from tensorkeep.errors import as_transport_error
from tensorkeep.transport.atomic._journal import Journal
from tensorkeep.transport.atomic._lock import take_lock
from tensorkeep.transport.atomic._staging import Staging
from tensorkeep.transport.atomic._working_directory import leave_working_directory


class PendingCommit:
    """A transaction that is committed and not finished, for readers that may not finish it.

    Another process may finish it at any time: a path from `resolve` may be gone when it is opened, and must then be
    resolved again.
    """

    def __init__(self, staging: Staging, journal: Journal, identity: tuple[int, ...]) -> None:
        self._staging = staging
        self._identity = identity
        self._new = frozenset(journal.renamed)
        self._patched = frozenset(journal.patched)
        self._removed = frozenset((*journal.first, *journal.removed)) - self._new

    def resolve(self, name: str) -> str:
        """Return the path at which a file of the new set is now."""
        waiting = self._staging.path_of(name)
        if name in self._new and os.path.lexists(waiting) and self._staging.commit_identity() == self._identity:
            return waiting
        return self._staging.place_of(name)

    def is_removed(self, name: str) -> bool:
        """Say whether a file does not belong to the new set, though it may still exist."""
        return name in self._removed

    def head_of(self, name: str) -> bytes | None:
        """Return the new first bytes of a file that is edited in place; None for other files."""
        if name not in self._patched:
            return None
        with as_transport_error("could not read the file", self._staging.place_of(name)):
            return self._staging.head_of(name)


def finish_pending_commit(directory: str | os.PathLike[str], base: str) -> PendingCommit | None:
    """Finish a transaction that a dead process committed, before reading; return it if that is not possible."""
    staging = Staging(os.fsdecode(directory), base)
    try:
        with as_transport_error("could not read the journal of a save", staging.path):
            identity = staging.commit_identity()
            if identity is None or not staging.is_trusted():
                return None
            place = staging.inode()
    except FileNotFoundError:  # another process has just finished it
        return None
    journal = staging.read_journal()
    # In a copy of the directory the inode differs: a copy may lack staged files, so it is only read past.
    if journal is None or (journal.place == place and _finish(staging)):
        return None
    return PendingCommit(staging, journal, identity)


def has_commit(directory: str | os.PathLike[str], base: str) -> bool:
    """Say whether a transaction is committed and not finished."""
    return Staging(os.fsdecode(directory), base).commit_identity() is not None


def _finish(staging: Staging) -> bool:
    """Say whether nothing is left to do, because this or another process did it."""
    try:
        lock = take_lock(staging.lock_path)
    except OSError:
        return staging.commit_identity() is None
    try:
        journal = staging.read_journal()
        if journal is not None:
            staging.replay(journal)
    except OSError:
        return False
    finally:
        leave_working_directory(staging.path, lock)
    return True
