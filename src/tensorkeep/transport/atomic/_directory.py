"""A whole directory that appears at once, with everything in it, or not at all.

    parent/checkpoint-500/                                  the directory
    parent/.checkpoint-500.tensorkeep-folder/lock           held by its writer while that lives
    parent/.checkpoint-500.tensorkeep-folder/new/           what is being written
    parent/.checkpoint-500.tensorkeep-folder/ready/         the same, complete, about to take its place
    parent/.checkpoint-500.tensorkeep-folder/old/           what it replaces, where the system cannot swap two names

Where nothing stands under the name and `ready` is there, a writer died in between, and `ready` is it. In any other
case nothing in there is needed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tensorkeep.errors import BusyError, RefusedError, SourceMissingError, TransportError, as_transport_error
from tensorkeep.transport._paths import refuse_url
from tensorkeep.transport.atomic._lock import DirectoryLock, take_lock
from tensorkeep.transport.system import exchange, sync_directory, sync_file

_SUFFIX: Final = ".tensorkeep-folder"
_LOCK: Final = "lock"


@contextmanager
def publish_directory(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[str]:
    """Write a directory that appears under its name only when the block ends without an error.

    What stood under that name is replaced as a whole. A symbolic link is followed, and stays.
    """
    refuse_url(os.fsdecode(path))
    place = _Place(os.path.realpath(path))
    with as_transport_error("could not write the directory", os.fsdecode(path)):
        place.check()
        recover_directories(place.parent)
        lock = place.begin()
    try:
        yield place.new
        with as_transport_error("could not write the directory", place.path):
            if not lock.is_held():
                raise BusyError("another process took this one for dead", path=place.path)
            place.commit(durable=durable)
    finally:
        place.leave(lock)


def recover_directories(parent: str | os.PathLike[str]) -> None:
    """Finish or remove what dead writers of directories have left, as far as this process may."""
    given = os.fsdecode(parent)
    with suppress(OSError):
        for name in os.listdir(given):
            if name.startswith(".") and name.endswith(_SUFFIX):
                place = _Place(os.path.join(os.path.realpath(given), name[1 : -len(_SUFFIX)]))
                with suppress(OSError):
                    place.leave(place.lock())


class _Place:
    """Where a directory belongs, and what is around it while it is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parent, name = os.path.split(path)
        self._around = os.path.join(self.parent, f".{name}{_SUFFIX}")
        self.new, self._ready, self._old = (os.path.join(self._around, part) for part in ("new", "ready", "old"))

    def check(self) -> None:
        """Make sure that a directory can stand there."""
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
                hint="Work in another directory, or save to one below",
            )
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise TransportError("only directories are replaced", path=self.path, found="something else")

    def begin(self) -> DirectoryLock:
        """Take the lock, and make an empty directory to write to."""
        while True:
            with suppress(FileExistsError):
                os.mkdir(self._around)
            try:
                lock = self.lock()
                break
            except FileNotFoundError:  # removed in this instant by somebody who was tidying up
                continue
            except BaseException:
                with suppress(OSError):
                    os.rmdir(self._around)
                raise
        try:
            self._settle()
            os.mkdir(self.new)
        except BaseException:
            self.leave(lock)
            raise
        return lock

    def lock(self) -> DirectoryLock:
        """Take the lock."""
        return take_lock(os.path.join(self._around, _LOCK))

    def commit(self, *, durable: bool) -> None:
        """Put the new directory in its place."""
        if os.path.isdir(self.path):
            shutil.copymode(self.path, self.new)
        if durable:
            _sync_tree(self.new)
        os.rename(self.new, self._ready)
        try:
            self._switch(durable=durable)
        except BaseException:
            with suppress(OSError):
                os.rename(self._ready, self.new)
            raise
        if durable:
            sync_directory(self.parent)

    def _switch(self, *, durable: bool) -> None:
        if os.path.isdir(self.path):
            if exchange(self._ready, self.path):
                return
            if durable:
                sync_directory(self._around)
            os.rename(self.path, self._old)
        os.rename(self._ready, self.path)

    def leave(self, lock: DirectoryLock) -> None:
        """Finish what a dead writer had decided, remove the rest, and let go of the lock."""
        try:
            self._settle()
        finally:
            lock.release()
            with suppress(OSError):
                os.rmdir(self._around)

    def _settle(self) -> None:
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
