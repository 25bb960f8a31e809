"""A whole directory that appears at once, with everything in it, or not at all.

    parent/checkpoint-500/                                  the directory
    parent/.checkpoint-500.tensorkeep-folder/lock           held by its writer while that lives
    parent/.checkpoint-500.tensorkeep-folder/new/           what is being written
    parent/.checkpoint-500.tensorkeep-folder/ready/         the same, complete, about to take its place
    parent/.checkpoint-500.tensorkeep-folder/old/           what it replaces, where the system cannot swap two names

If nothing exists under the name and `ready` does, a writer died between two renames, and `ready` is the directory. In
any other case, nothing in the working directory is needed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tensorkeep.errors import BusyError, RefusedError, SourceMissingError, TransportError, as_transport_error
from tensorkeep.transport.atomic._lock import DirectoryLock, take_lock
from tensorkeep.transport.atomic._working_directory import LOCK, enter_working_directory, leave_working_directory
from tensorkeep.transport.remote import refuse_url
from tensorkeep.transport.system import exchange, sync_directory, sync_file

_SUFFIX: Final = ".tensorkeep-folder"


@contextmanager
def publish_directory(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[str]:
    """Write a directory that appears under its name only when the block ends without an error.

    What existed under that name is replaced as a whole. A symbolic link is followed, and stays.
    """
    refuse_url(os.fsdecode(path))
    target = _Target(os.path.realpath(path))
    with as_transport_error("could not write the directory", os.fsdecode(path)):
        target.check()
        recover_directories(target.parent)
        lock = target.begin()
    try:
        yield target.new
        with as_transport_error("could not write the directory", target.path):
            if not lock.is_held():
                raise BusyError("lost the save lock: another process decided this one had died", path=target.path)
            target.commit(durable=durable)
    finally:
        target.leave(lock)


def recover_directories(parent: str | os.PathLike[str]) -> None:
    """Finish or remove what dead writers of directories left, as far as permissions allow."""
    given = os.fsdecode(parent)
    with suppress(OSError):
        for name in os.listdir(given):
            if name.startswith(".") and name.endswith(_SUFFIX):
                target = _Target(os.path.join(os.path.realpath(given), name[1 : -len(_SUFFIX)]))
                with suppress(OSError):
                    target.leave(take_lock(target.lock_path))


class _Target:
    """Where a directory belongs, and the working directory beside it while it is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parent, name = os.path.split(path)
        self._around = os.path.join(self.parent, f".{name}{_SUFFIX}")
        self.lock_path = os.path.join(self._around, LOCK)
        self.new, self._ready, self._old = (os.path.join(self._around, part) for part in ("new", "ready", "old"))

    def check(self) -> None:
        """Refuse a target that cannot be replaced."""
        if not os.path.isdir(self.parent):
            raise SourceMissingError(
                "could not write the directory", path=self.parent, found="nothing", hint="Create it first"
            )
        inside = os.path.realpath(os.curdir)
        if os.path.commonpath([inside, self.path]) == self.path:
            raise RefusedError(
                "the working directory would be replaced",
                path=self.path,
                found=inside,
                hint="Work in another directory, or save to a subdirectory",
            )
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise TransportError("only directories are replaced", path=self.path, found="something else")

    def begin(self) -> DirectoryLock:
        """Take the lock, and make an empty directory to write to."""
        lock = enter_working_directory(self._around)
        try:
            self._recover()
            os.mkdir(self.new)
        except BaseException:
            self.leave(lock)
            raise
        return lock

    def commit(self, *, durable: bool) -> None:
        """Put the new directory in its place."""
        if os.path.isdir(self.path):
            shutil.copymode(self.path, self.new)
        if durable:
            _sync_tree(self.new)  # before `ready`, which a reader takes for complete
        os.rename(self.new, self._ready)
        try:
            self._swap(durable=durable)
        except BaseException:
            with suppress(OSError):
                os.rename(self._ready, self.new)
            raise
        if durable:
            sync_directory(self.parent)

    def _swap(self, *, durable: bool) -> None:
        if os.path.isdir(self.path):
            if exchange(self._ready, self.path):
                return
            if durable:
                sync_directory(self._around)  # `ready` is on the disk before the old directory loses its name
            os.rename(self.path, self._old)
        os.rename(self._ready, self.path)

    def leave(self, lock: DirectoryLock) -> None:
        """Finish what a dead writer committed, remove the rest, and release the lock."""
        try:
            self._recover()
        finally:
            leave_working_directory(self._around, lock)

    def _recover(self) -> None:
        for candidate in (self._ready, self._old):
            if not os.path.lexists(self.path):
                with suppress(OSError):
                    os.rename(candidate, self.path)
                    sync_directory(self.parent)
        shutil.rmtree(self.new, ignore_errors=True)
        if os.path.lexists(self.path):
            shutil.rmtree(self._ready, ignore_errors=True)
            shutil.rmtree(self._old, ignore_errors=True)


def _sync_tree(directory: str) -> None:
    """Wait until the disk has every file and every name in a directory."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in files:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                sync_file(path)
        sync_directory(folder)
