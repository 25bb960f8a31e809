"""A file that appears complete or not at all.

The bytes go to a staged file in the same directory, which is renamed over the target as the last step. A staged file
is locked while its writer lives (flock, released by the kernel when a process dies), so the next save can distinguish
the leftover of a killed save from a running one, and remove it.

Where the file system cannot rename (some FUSE mounts of object stores), the staged file is copied over the target
and removed. A kill during that copy leaves a partial target beside the complete staged file; if the copy fails, the
staged file stays and the error names it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from tensorkeep.errors import SourceMissingError, TransportError, as_transport_error
from tensorkeep.transport.atomic._dependents import remove_dependents
from tensorkeep.transport.atomic._sink import FileSink, take_over_mode
from tensorkeep.transport.remote import refuse_url
from tensorkeep.transport.sources import ByteSink
from tensorkeep.transport.system import (
    HANDLES_OPEN_FILES,
    finish_freeing,
    freed_in_background,
    host_tag,
    mapping_pays,
    sync_directory,
    try_lock,
)

_SUFFIX: Final = ".tensorkeep-staged"
_STAGED = re.compile(r"\..*\.(?P<host>[0-9a-f]{8})-[0-9a-f]{16}\.tensorkeep-staged", re.DOTALL)
_LONGEST_STEM: Final = 200
"""Bytes of the target's name that a staged name keeps: file systems stop at 255."""


@contextmanager
def publish(
    path: str | os.PathLike[str], *, durable: bool = True, on_written: Callable[[int], None] | None = None
) -> Iterator[ByteSink]:
    """Write a file that appears under its name only when the block ends without an error.

    A new file gets the mode of the umask; a replaced one keeps its mode, and its owner where the system allows. A
    symbolic link is followed, and stays. Only regular files are replaced.
    """
    given = os.fsdecode(path)
    refuse_url(given)
    with as_transport_error("could not write the file", given):
        target = _target_of(given)
        before = _status_of_replaced(target)
        sweep_leftovers(os.path.dirname(target))
        finish_freeing()
        staged = _StagedFile(target, before, on_written, durable=durable)
    with staged:
        yield staged.sink
        with as_transport_error("could not write the file", target):
            staged.commit(before)
    if before is not None:
        remove_dependents(target)


def _target_of(path: str) -> str:
    """Return the file that a path leads to."""
    if not path or path.endswith((os.sep, os.altsep or os.sep)):
        raise TransportError("not the name of a file", path=path, found=repr(path))
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise SourceMissingError(
            "could not write the file",
            path=path,
            found=os.strerror(errno.ENOENT),
            hint="Create the directory first",
        ).numbered(errno.ENOENT)
    return target


def sweep_leftovers(directory: str) -> list[str]:
    """Remove the staged files of saves that were killed.

    On network file systems, where locks may not reach other hosts, only files of this host.
    """
    try:
        with os.scandir(directory) as found:
            matches = [(entry.path, _STAGED.fullmatch(entry.name)) for entry in found]
    except OSError:
        return []
    leftovers = [(path, match["host"]) for path, match in matches if match]
    if leftovers and not mapping_pays(directory):
        leftovers = [(path, host) for path, host in leftovers if host == host_tag()]
    return [path for path, _ in leftovers if _remove_if_dead(path)]


def _remove_if_dead(path: str) -> bool:
    """Remove a staged file that no writer has locked.

    It is removed while it is locked here, so that a writer that has just created it cannot believe that it owns the
    file; on Windows after it was closed, where removal fails if a writer has it open.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            if not try_lock(fd):
                return False
            if HANDLES_OPEN_FILES:
                os.unlink(path)
        finally:
            os.close(fd)
        if not HANDLES_OPEN_FILES:
            os.unlink(path)
    except OSError:
        return False
    return True


def _status_of_replaced(target: str) -> os.stat_result | None:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise TransportError("only regular files are replaced", path=target, found=kind)
    return status


class _StagedFile:
    """The file that receives the bytes; removed on exit if it was not committed."""

    def __init__(
        self,
        target: str,
        before: os.stat_result | None,
        on_written: Callable[[int], None] | None,
        *,
        durable: bool,
    ) -> None:
        self._target = target
        self._durable = durable
        self._path, fd = _create_locked(target, before)
        self.sink = FileSink(fd, target, on_written, is_synced=durable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.sink.close()
        finally:
            if self._path:
                with suppress(OSError):
                    os.unlink(self._path)

    def commit(self, before: os.stat_result | None) -> None:
        if before is not None:
            take_over_mode(self.sink.fd, before)
        if self._durable:
            os.fsync(self.sink.fd)  # before the rename: the name must never lead to bytes that are not on the disk
        os.close(os.dup(self.sink.fd))  # NFS and FUSE report failed writes when a descriptor is closed
        if not HANDLES_OPEN_FILES:
            self.sink.close()
        self._rename_or_copy()
        if self._durable:
            sync_directory(os.path.dirname(self._target))

    def _rename_or_copy(self) -> None:
        try:
            with freed_in_background([self._target]):
                os.replace(self._path, self._target)
        except OSError as error:
            if not _lacks_rename(error, os.path.dirname(self._target)):
                raise
            self._copy()

    def _copy(self) -> None:
        """Overwrite the target where the file system cannot rename; on failure the staged file stays."""
        staged, self._path = self._path, ""
        try:
            shutil.copyfile(staged, self._target)
            with open(self._target, "rb+") as copied:
                os.fsync(copied.fileno())
        except OSError as error:
            raise TransportError(
                "could not copy the file to its place on a file system that cannot rename",
                path=self._target,
                found=error.strerror,
                hint=f"The complete file is {staged}: move it away before the next save",
            ).numbered(error.errno) from error
        os.unlink(staged)


def _create_locked(target: str, before: os.stat_result | None) -> tuple[str, int]:
    """Create a staged file; one that will replace a file is private until it has that file's mode."""
    directory, name = os.path.split(target)
    stem = name if len(os.fsencode(name)) <= _LONGEST_STEM else name[: _LONGEST_STEM // 4]
    mode = 0o666 if before is None else 0o600
    while True:
        path = os.path.join(directory, f".{stem}.{host_tag()}-{secrets.token_hex(8)}{_SUFFIX}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        try:
            if _is_ours(fd):
                return path, fd
        except BaseException:
            os.close(fd)
            os.unlink(path)
            raise
        os.close(fd)


def _is_ours(fd: int) -> bool:
    """Lock a staged file that was just created; False if another save swept it in between."""
    locked = True
    with suppress(OSError):  # a file system without locks, where nothing is ever swept
        locked = try_lock(fd)
    return locked and os.fstat(fd).st_nlink > 0


def _lacks_rename(error: OSError, directory: str) -> bool:
    """Say whether the file system cannot rename, as opposed to a user who may not."""
    if error.errno == errno.EPERM:  # from mounts of object stores, but also from sticky directories
        return not mapping_pays(directory) and not os.stat(directory).st_mode & stat.S_ISVTX
    return error.errno in {errno.ENOSYS, errno.EOPNOTSUPP}
