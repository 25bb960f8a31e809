"""Cached blocks in files, up to a bound; the least recently used are evicted. Any process may die at any time.

    tensorkeep-blocks/lock              locked to add a block; holds the number of bytes
    tensorkeep-blocks/3f/3f09…-12       a block: its digest, and its bytes

No block is trusted: its digest, over its bytes and its key, is checked on each read. A process that cannot write
to the cache works without it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import DIGEST_NBYTES, new_hasher
from tensorkeep.errors import AccessDeniedError, as_transport_error
from tensorkeep.transport.system import try_lock

_FOLDER: Final = "tensorkeep-blocks"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_KEPT_SHARE: Final = 0.9
"""Share of the bound that is left after an eviction, so that not every new block scans the folder."""

_PATIENCE_S: Final = 0.5
"""Seconds to wait for another process that adds a block; after a timeout, this process adds none."""

_PAUSE_S: Final = 0.0005
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NEW: Final = ".new"

_turn = threading.Lock()
_open_locks: Final[set[int]] = set()


def _start_anew() -> None:
    """Forget who was adding a block when this process was forked: no thread here will end that.

    The lock is closed: else it lives as long as this process does.
    """
    global _turn  # noqa: PLW0603
    _turn = threading.Lock()
    while _open_locks:
        os.close(_open_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


class BlockFiles:
    """Blocks in a directory that only this user can read."""

    def __init__(self, directory: str, max_nbytes: int) -> None:
        self._folder = os.path.join(os.path.abspath(directory), _FOLDER)
        self._max_nbytes = max_nbytes
        self._adds = True
        try:
            with as_transport_error("could not make the cache", directory):
                os.makedirs(directory, exist_ok=True)
                with suppress(FileExistsError):
                    os.mkdir(self._folder, 0o700)
                self._check_owner()
        except OSError as error:
            if error.errno not in _FULL:
                raise

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockFiles, (os.path.dirname(self._folder), self._max_nbytes)

    def _check_owner(self) -> None:
        status = os.lstat(self._folder)
        is_ours = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
        if not stat.S_ISDIR(status.st_mode) or not is_ours:
            raise AccessDeniedError(
                "the cache is not this user's alone",
                path=self._folder,
                expected="a folder of this user with mode 700",
                hint="Name another cache_dir",
            )

    def has(self, key: str, number: int) -> bool:
        """Say whether there seems to be a block."""
        return os.path.exists(self._path_of(key, number))

    def get(self, key: str, number: int) -> memoryview | None:
        """Return the bytes of a block; None where it is not there, or damaged."""
        path = self._path_of(key, number)
        try:
            with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
                found = memoryview(file.read())
        except OSError:
            return None
        data = found[DIGEST_NBYTES:]
        if found[:DIGEST_NBYTES] != _digest(key, number, data):
            with suppress(OSError):
                os.unlink(path)
            return None
        with suppress(OSError):
            os.utime(path)
        return data

    def put(self, key: str, number: int, data: Buffer) -> None:
        """Keep a block, if there is room on the disk."""
        path = self._path_of(key, number)
        nbytes = DIGEST_NBYTES + len(memoryview(data))
        if not self._adds:
            return
        with suppress(OSError), _turn, self._locked() as lock:
            self._adds = lock is not None
            if lock is None or os.path.lexists(path):
                return
            total = self._total(lock)
            if total + nbytes > self._max_nbytes:
                total = self._make_room(nbytes)
            if total + nbytes <= self._max_nbytes:
                _note(lock, total + nbytes)  # first, so that it is never less than what is there
                _write(path, [_digest(key, number, data), data])

    def _path_of(self, key: str, number: int) -> str:
        return os.path.join(self._folder, key[:2], f"{key}-{number}")

    @contextmanager
    def _locked(self) -> Iterator[int | None]:
        """Give the open lock file, locked; None if somebody else has it for long."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        fd = os.open(os.path.join(self._folder, "lock"), flags, 0o600)
        _open_locks.add(fd)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not (is_ours := try_lock(fd)) and time.monotonic() < deadline:
                time.sleep(_PAUSE_S)
            yield fd if is_ours else None
        finally:
            _open_locks.discard(fd)
            os.close(fd)

    def _total(self, lock: int) -> int:
        """Return how many bytes there are, or what is more by what a killed process did not add."""
        text = os.read(lock, 32)
        return int(text) if text.isdigit() else sum(nbytes for _, nbytes, _ in self._all())

    def _make_room(self, nbytes: int) -> int:
        """Remove what was not used for the longest time, and return how many bytes are left."""
        found = sorted(self._all())
        total = sum(size for _, size, _ in found)
        allowed = min(self._max_nbytes * _KEPT_SHARE, self._max_nbytes - nbytes)
        for _, size, path in found:
            if total <= allowed:
                break
            with suppress(OSError):
                os.unlink(path)
                total -= size
        return total

    def _all(self) -> Iterator[tuple[int, int, str]]:
        """Give time of last use, size and path of each block, and remove what a killed process has left."""
        for folder in os.scandir(self._folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for entry in os.scandir(folder.path):
                with suppress(FileNotFoundError):
                    if entry.name.endswith(_NEW):  # whoever wrote it would hold the lock
                        os.unlink(entry.path)
                        continue
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, status.st_size, entry.path


def _digest(key: str, number: int, data: Buffer) -> bytes:
    hasher = new_hasher()
    hasher.update(f"{key} {number} ".encode())
    hasher.update(data)
    return hasher.digest()


def _note(lock: int, total: int) -> None:
    text = b"%020d" % total
    os.lseek(lock, 0, os.SEEK_SET)
    os.write(lock, text)


def _write(path: str, buffers: list[Buffer]) -> None:
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path), 0o700)
    new = path + _NEW
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.writelines(buffers)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
