"""One writer at a time: a lock file that names its owner.

The lock is the kernel's (flock), which releases it however the process dies; a lock file that is not locked means
nothing. Where the file system has no locks, the file itself is the lock, and its text names the owner: on this host
the owner is alive if its process is, on another host if it has changed the file lately.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from tensorkeep.errors import BusyError
from tensorkeep.transport.system import _platform, host_tag, try_lock

_STALE_AFTER_S: Final = 15 * 60
"""Seconds without a sign of life after which an owner on another host counts as dead."""

_REFRESHED_EVERY_S: Final = 60
_MAX_NBYTES: Final = 4096
_MAX_ATTEMPTS: Final = 100
"""Attempts if the lock file vanishes while it is locked, in a busy directory or an unusual file system."""


class _Owner(msgspec.Struct, frozen=True):
    """The process that holds a lock.

    Attributes:
        pid: Process number on its host.
        host: Network name of the host.
        kernel: The `host_tag`, which differs after a reboot, and between hosts of one name.
        birth: Distinguishes the process from a later one with the same number; empty if unknown.
        started: When the lock was taken, ISO 8601.
        command: Name of the program.
    """

    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    host: str
    kernel: str
    birth: str
    started: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) on {self.host}, since {self.started}"


class DirectoryLock:
    """A lock that is held."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._refreshed_at = time.monotonic()
        _held.add(self)

    def forget(self) -> None:
        """Close the lock file in a forked child; otherwise the lock lives as long as the child."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def is_held(self) -> bool:
        """Say whether no other process took the lock over, which can happen where the file system has no locks."""
        return _is_at(self._fd, self._path)

    def refresh(self) -> None:
        """Show that the owner is alive; cheap enough to call for every piece that is written."""
        now = time.monotonic()
        if now - self._refreshed_at >= _REFRESHED_EVERY_S:
            self._refreshed_at = now
            with suppress(OSError):
                os.utime(self._path)

    def release(self) -> None:
        """Remove the lock file while it is held, then release the lock."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if not _platform.HANDLES_OPEN_FILES:
            os.close(fd)
            _remove(self._path)
            return
        try:
            if _is_at(fd, self._path):
                _remove(self._path)
        finally:
            os.close(fd)


_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def take_lock(path: str) -> DirectoryLock:
    """Take a lock without waiting; one whose owner died is taken over."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            lock = _create(path)
        except FileExistsError:
            _remove_if_dead(path)
        else:
            if lock is not None:
                return lock
    raise BusyError("could not take the lock of the directory: it keeps changing hands", path=os.path.dirname(path))


def _create(path: str) -> DirectoryLock | None:
    """Make the lock file and lock it; None if another process mistook it for a leftover in between."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags, 0o666)
    lock = DirectoryLock(fd, path)
    try:
        is_ours = _try_lock(fd) is not False and lock.is_held()
        if is_ours:
            _write_owner(fd)
    except BaseException:
        lock.release()
        raise
    if is_ours:
        return lock
    os.close(fd)  # the process that locked the file removes it
    return None


def _remove_if_dead(path: str) -> None:
    """Remove a lock file whose owner died. Where open files cannot be removed, success itself proves that."""
    if not _platform.HANDLES_OPEN_FILES:
        with suppress(FileNotFoundError):
            try:
                os.unlink(path)
            except PermissionError:
                raise _busy(path, None) from None
        return
    try:
        fd = _open(path)
    except FileNotFoundError:  # removed by its owner
        return
    try:
        is_locked = _try_lock(fd)
        owner = _read_owner(fd)
        if is_locked is False or (is_locked is None and _is_alive(owner, fd)):
            raise _busy(path, owner)
        if _is_at(fd, path):
            with suppress(FileNotFoundError):
                os.unlink(path)
    finally:
        os.close(fd)


def _open(path: str) -> int:
    """Open a lock file, even of another user: only some network file systems require write access for a lock."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags | os.O_RDWR)
    except PermissionError:
        return os.open(path, flags | os.O_RDONLY)


def _try_lock(fd: int) -> bool | None:
    """Say whether the kernel gave the lock; None where the file system has no locks."""
    if not _platform.HAS_LOCKS:
        return None
    try:
        return try_lock(fd)
    except OSError:
        return None


def _write_owner(fd: int) -> None:
    owner = _Owner(
        pid=os.getpid(),
        host=platform.node(),
        kernel=host_tag(),
        birth=_birth(os.getpid()),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=os.path.basename(sys.argv[0] if sys.argv else "")[:200] or "python",
    )
    os.write(fd, msgspec.json.encode(owner))


def _read_owner(fd: int) -> _Owner | None:
    """Return who holds the lock; None if that cannot be read, or is still being written."""
    try:
        os.lseek(fd, 0, os.SEEK_SET)
        return msgspec.json.decode(os.read(fd, _MAX_NBYTES), type=_Owner)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_alive(owner: _Owner | None, fd: int) -> bool:
    if owner is None or (owner.host, owner.kernel) != (platform.node(), host_tag()):
        return time.time() - os.fstat(fd).st_mtime < _STALE_AFTER_S
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process, and alive
        pass
    return _birth(owner.pid) == owner.birth


def _birth(pid: int) -> str:
    """Return the start time of a process in clock ticks (proc(5), `/proc/pid/stat`); empty if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_at(fd: int, path: str) -> bool:
    """Say whether an open file is still the one at a path."""
    if fd < 0:
        return False
    try:
        there, ours = os.lstat(path), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _busy(path: str, owner: _Owner | None) -> BusyError:
    return BusyError(
        "another save to the directory is running",
        path=os.path.dirname(os.path.dirname(path)),
        found=str(owner) if owner else "an unknown process",
        hint="Wait for it to end, then save again",
    )
