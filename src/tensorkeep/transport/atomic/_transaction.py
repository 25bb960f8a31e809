"""A set of files in a directory that changes from the old set to the new one at once, or not at all.

New files wait in a staging directory beside the old ones. The journal of the changes is the commit: a process that is
killed before the journal appears has changed nothing, and if it is killed later, the next reader or writer completes
the changes (`_recovery`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tensorkeep.errors import (
    AccessDeniedError,
    BusyError,
    SourceMissingError,
    TransportError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport.atomic._dependents import dependents_of
from tensorkeep.transport.atomic._file import sweep_leftovers
from tensorkeep.transport.atomic._journal import Journal, check_name
from tensorkeep.transport.atomic._link import add_name, begins_with, has_original_size, is_being_changed
from tensorkeep.transport.atomic._lock import DirectoryLock
from tensorkeep.transport.atomic._reserved import Reserved, make_room
from tensorkeep.transport.atomic._sink import FileSink, take_over_mode
from tensorkeep.transport.atomic._staging import HEAD_SUFFIX, RESERVED, STAGING_SUFFIX, Staging
from tensorkeep.transport.atomic._target import create_staged, first_bytes, is_file_or_link, status_of_replaced
from tensorkeep.transport.atomic._working_directory import enter_working_directory, leave_working_directory
from tensorkeep.transport.remote import refuse_url
from tensorkeep.transport.sources import ByteRange, ByteSink, LocalFile
from tensorkeep.transport.system import finish_freeing, freed_in_background, sync_directory, sync_file, write_at

_PATIENCE_S: Final = 1.0
"""Seconds to wait for the lock: a reader that checks for an unfinished commit holds it briefly."""

_MAX_SYNCS: Final = 16
"""Files that are synced at a time, so that the file system can commit them together."""

_LATE: Final = "the save is committed, but a system call failed; opening or saving the checkpoint again finishes it"


@contextmanager
def transaction(
    directory: str | os.PathLike[str], base: str, *, durable: bool = True, patience_s: float = _PATIENCE_S
) -> Iterator[Transaction]:
    """Replace a set of files by another, all at once.

    What a dead process left is finished if it was committed, and removed otherwise. If the block ends without
    `Transaction.commit`, the directory is as it was before.
    """
    given = os.fsdecode(directory)
    refuse_url(given)
    check_name(base, given)
    with as_transport_error("could not save to the directory", given):
        staging = Staging(_existing(given), base)
        lock = enter_working_directory(
            staging.path, make=staging.make, check=lambda: _check_trust(staging), patience_s=patience_s
        )
    try:
        with as_transport_error("could not save to the directory", given):
            finish_freeing()
            _finish_or_drop(staging)
            sweep_leftovers(staging.directory)
        yield Transaction(staging, lock, durable=durable)
    finally:
        _leave(staging, lock)


def _existing(directory: str) -> str:
    real = os.path.realpath(directory)
    try:
        status = os.stat(real)
    except FileNotFoundError as cause:
        raise SourceMissingError(
            "could not save to the directory",
            path=directory,
            found=os.strerror(errno.ENOENT),
            hint="Create the directory first",
        ).numbered(errno.ENOENT) from cause
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return real


def _check_trust(staging: Staging) -> None:
    if not staging.is_trusted():
        raise AccessDeniedError(
            "the staging directory belongs to another user, or is not a directory", path=staging.path
        )


def _finish_or_drop(staging: Staging) -> None:
    journal = staging.read_journal()
    if journal is not None:
        staging.replay(journal)
    else:
        staging.drop()


def _leave(staging: Staging, lock: DirectoryLock) -> None:
    """Remove what was staged unless it is committed, and release the lock."""
    try:
        with suppress(OSError):  # the next writer removes it
            # Without the lock the files are another save's; with a journal they are the new set.
            if lock.is_held() and staging.commit_identity() is None:
                staging.drop()
    finally:
        leave_working_directory(staging.path, lock)


class Transaction:
    """A set of files that is being replaced; made by `transaction`."""

    def __init__(self, staging: Staging, lock: DirectoryLock, *, durable: bool) -> None:
        self._staging = staging
        self._lock = lock
        self._durable = durable
        self._new: set[str] = set()
        self._patched: set[str] = set()
        self._is_over = False

    def path_of(self, name: str) -> str:
        """Return the path of a written file until the commit."""
        return self._staging.path_of(name)

    @contextmanager
    def file(
        self, name: str, *, on_written: Callable[[int], None] | None = None, syncs: bool = True
    ) -> Iterator[ByteSink]:
        """Write a new file; several threads can write files at a time. Without `syncs`, `sync` must follow.

        It gets the mode of the umask, or the mode and (where the system allows) the owner of the file that it
        replaces. A symbolic link of that name is replaced; its target is not touched. If the block raises, the file
        is removed and its name is free again.
        """
        self._check_new(name)
        place, path = self._staging.place_of(name), self._staging.path_of(name)
        with as_transport_error("could not write the file", place):
            before = status_of_replaced(place)
            fd = create_staged(path, private=before is not None)
            sink = FileSink(fd, place, self._reporter(on_written), is_synced=self._durable)
        try:
            yield sink
            with as_transport_error("could not write the file", place):
                if before is not None:
                    take_over_mode(sink.fd, before)
                if self._durable and syncs:
                    os.fsync(sink.fd)  # before the journal names the file: a commit must find all its bytes
                sink.close()
        except BaseException:
            with suppress(OSError):
                sink.close()
            with suppress(OSError):
                os.unlink(path)
            raise
        self._new.add(name)

    def sync(self, names: Iterable[str]) -> None:
        """Wait until the disk has files, all at a time: one after another, each small file would cost as much."""
        if not self._durable:
            return

        def sync(name: str) -> None:
            with as_transport_error("could not write the file", self._staging.place_of(name)):
                sync_file(self.path_of(name))

        parallel_for_each(list(names), sync, n_threads=_MAX_SYNCS)

    def reserve(self, name: str, nbytes: int) -> Reserved:
        """Make a new file of its final size, for several processes to fill until `admit` completes it."""
        self._check_new(name)
        place, path = self._staging.place_of(name), self._staging.path_of(name)
        with as_transport_error("could not write the file", place):
            fd = create_staged(path, private=status_of_replaced(place) is not None)
            try:
                return make_room(fd, path, nbytes)
            finally:
                os.close(fd)

    def admit(self, name: str, head: bytes) -> None:
        """Complete a reserved file that is filled now; its first bytes, the header, are written last."""
        place = self._staging.place_of(name)
        with as_transport_error("could not write the file", place):
            before = status_of_replaced(place)
            fd = os.open(self._staging.path_of(name), os.O_RDWR | getattr(os, "O_BINARY", 0))
            try:
                write_at(fd, 0, memoryview(head))
                if before is not None:
                    take_over_mode(fd, before)
                if self._durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        self._new.add(name)

    def refresh(self) -> None:
        """Show that this writer is alive, while other processes write."""
        self._lock.refresh()

    def link(
        self, name: str, source: LocalFile, head: bytes, *, on_written: Callable[[int], None] | None = None
    ) -> bool:
        """Make a new file another name of an existing one, or a copy where the file system has no hard links.

        Returns False if the file does not begin with `head`, or is being edited.
        """
        self._check_new(name)
        place, path = self._staging.place_of(name), self._staging.path_of(name)
        with as_transport_error("could not write the file", place):
            is_file_or_link(place)
            if not has_original_size(source):
                return False
            is_linked = add_name(source, path)
        if not is_linked:
            with self.file(name, on_written=on_written) as sink:
                sink.copy_from(source, ByteRange(0, source.nbytes))
        with as_transport_error("could not write the file", place):
            if is_linked and self._durable:
                sync_file(path)
            # In this order: a process that edits the file in place leaves either its staging directory or its bytes.
            is_at_rest = not (is_linked and is_being_changed(source, but=self._staging.path))
            if not (is_at_rest and begins_with(path, head)):
                os.unlink(path)
                self._new.discard(name)
                return False
        self._new.add(name)
        self._reporter(on_written)(source.nbytes)
        return True

    def _check_new(self, name: str) -> None:
        directory = self._staging.directory
        check_name(name, directory, taken=RESERVED | self._patched)
        if name.endswith((HEAD_SUFFIX, STAGING_SUFFIX)):
            raise UnsupportedError("names with this ending are reserved for tensorkeep", path=directory, found=name)

    def _reporter(self, on_written: Callable[[int], None] | None) -> Callable[[int], None]:
        def report(nbytes: int) -> None:
            self._lock.refresh()
            if on_written is not None:
                on_written(nbytes)

        return report

    def patch(self, name: str, head: bytes) -> None:
        """Replace the first bytes of an existing file, in place, at the commit."""
        check_name(name, self._staging.directory, taken=self._new | self._patched)
        place = self._staging.place_of(name)
        with as_transport_error("could not edit the file", place):
            before = first_bytes(place, len(head))
            self._staging.write_head(name, head, before, durable=self._durable)
        self._patched.add(name)

    def commit(self, *, first: Iterable[str] = (), last: str | None = None, remove: Iterable[str] = ()) -> None:
        """Commit. If the process dies part-way, the next reader or writer completes it.

        `first` names old files to remove before any new one appears, `last` the new file that appears last, and
        `remove` old files to remove at the end. Signatures that name a file which changes are removed with them.
        """
        if self._is_over:
            raise TransportError("the transaction is already committed", path=self._staging.directory)
        if last is not None and last not in self._new:
            raise TransportError("the last file was not written", path=self._staging.place_of(last))
        changed = {*first, *remove, *self._new, *self._patched}
        signatures = dependents_of(self._staging.directory, changed)
        journal = self._journal_for(list(first), last, [*remove, *signatures])
        with as_transport_error("could not save to the directory", self._staging.directory):
            if not self._lock.is_held():
                raise BusyError(
                    "lost the save lock: another process decided this one had died", path=self._staging.directory
                )
            is_single = len(journal.renamed) == 1 and not (journal.first or journal.patched or journal.removed)
            # Up to here nothing outside the staging directory has changed, and an error leaves the old set.
            if is_single:  # one rename is atomic by itself and needs no journal
                place = self._staging.place_of(journal.renamed[0])
                with freed_in_background([place]):
                    os.replace(self.path_of(journal.renamed[0]), place)
            else:
                self._staging.write_journal(journal, durable=self._durable)
        self._is_over = True  # committed: from here on, errors leave the rest to the next reader or writer
        with as_transport_error(_LATE, self._staging.directory):
            if not is_single:
                self._staging.replay(journal, durable=self._durable)
            elif self._durable:
                sync_directory(self._staging.directory)

    def _journal_for(self, first: list[str], last: str | None, remove: list[str]) -> Journal:
        for name in (*first, *remove):
            check_name(name, self._staging.directory, taken=self._patched)
        names = sorted(self._new - {last}) + ([last] if last is not None else [])
        with as_transport_error("could not save to the directory", self._staging.directory):
            existing = {name for name in (*first, *remove) if is_file_or_link(self._staging.place_of(name))}
            return Journal(
                place=self._staging.inode(),
                first=tuple(
                    name for name in dict.fromkeys(first) if name in existing and (self._patched or [name] != names)
                ),
                patched=tuple(sorted(self._patched)),
                renamed=tuple(names),
                removed=tuple(name for name in dict.fromkeys(remove) if name in existing - self._new),
            )
