"""The staging directory of a transaction: where new files wait, and how they get to their places.

    model.safetensors.index.json                  the old set
    .model.tensorkeep-staging/lock                held by the writer while it lives
    .model.tensorkeep-staging/<name>              a new file, under its final name
    .model.tensorkeep-staging/<name>.head         the new header of a file that is edited in place, and the old one
    .model.tensorkeep-staging/commit.json         the journal; its appearance is the commit

Before the commit nothing outside the staging directory changes. After it every step can be repeated, so the next
reader or writer can continue where a dead process stopped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tensorkeep.errors import IntegrityError, as_transport_error
from tensorkeep.transport.atomic._journal import Journal, decode_journal, encode_journal
from tensorkeep.transport.atomic._working_directory import LOCK
from tensorkeep.transport.system import freed_in_background, gather_write, sync_directory, write_at

STAGING_SUFFIX: Final = ".tensorkeep-staging"
HEAD_SUFFIX: Final = ".head"
_COMMIT: Final = "commit.json"
_DRAFT: Final = "commit.json.draft"
RESERVED: Final = frozenset({LOCK, _COMMIT, _DRAFT})
"""Names in a staging directory that no new file can have."""

_BLOCK_NBYTES: Final = 4096


class Staging:
    """A staging directory, which may or may not exist."""

    def __init__(self, directory: str, base: str) -> None:
        self.directory = directory
        self.path = os.path.join(directory, f".{base}{STAGING_SUFFIX}")
        self.lock_path = os.path.join(self.path, LOCK)
        self._commit_path = os.path.join(self.path, _COMMIT)

    def path_of(self, name: str) -> str:
        """Return where a new file waits."""
        return os.path.join(self.path, name)

    def place_of(self, name: str) -> str:
        """Return where a file belongs."""
        return os.path.join(self.directory, name)

    def make(self, path: str) -> None:
        """Make the directory, accessible to all who can access its parent."""
        os.mkdir(path)
        around = os.stat(self.directory).st_mode
        shared = around & (0o755 if around & stat.S_ISVTX else 0o777)
        with suppress(OSError):
            os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | shared)

    def is_trusted(self) -> bool:
        """Say whether only a user who may change the set's files can have made this directory.

        In a sticky directory, such as /tmp, any user can make files but only their owners may rename or remove them.
        """
        ours, around = os.lstat(self.path), os.stat(self.directory)
        if not stat.S_ISDIR(ours.st_mode):
            return False
        return not around.st_mode & stat.S_ISVTX or ours.st_uid in {0, os.geteuid(), around.st_uid}

    def inode(self) -> int:
        """Return what distinguishes this directory from a copy of it."""
        return os.lstat(self.path).st_ino

    def commit_identity(self) -> tuple[int, ...] | None:
        """Return what distinguishes this journal from a later one, or None if nothing is committed."""
        try:
            status = os.lstat(self._commit_path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def read_journal(self) -> Journal | None:
        """Return the journal, or None if nothing is committed."""
        with as_transport_error("could not read the journal of a save", self._commit_path):
            try:
                text = _read_regular(self._commit_path)
            except FileNotFoundError:
                return None
        return decode_journal(text, self._commit_path)

    def write_journal(self, journal: Journal, *, durable: bool) -> None:
        """Commit: after a kill, the new set counts from here on; after a power cut, once `replay` has synced."""
        if durable:
            # The names of the staged files, and of the staging directory itself, must be on the disk before a journal
            # that refers to them: the disk may otherwise keep the journal and lose the files.
            sync_directory(self.path)
            sync_directory(self.directory)
        draft = os.path.join(self.path, _DRAFT)
        _write_whole(draft, [encode_journal(journal)], like=self.directory, durable=durable)
        os.replace(draft, self._commit_path)  # the commit: the journal appears whole, where readers look for it

    def replay(self, journal: Journal, *, durable: bool = True) -> None:
        """Make the changes in the journal, or continue an interrupted replay, and empty the staging directory."""
        with freed_in_background(map(self.place_of, (*journal.first, *journal.renamed, *journal.removed))):
            self._replay(journal, durable=durable)
        self.drop()

    def _replay(self, journal: Journal, *, durable: bool) -> None:
        if durable:  # otherwise a power cut could leave some new files among old ones, and no journal
            sync_directory(self.path)
        for name in journal.first:
            # If its new file is no longer staged, the file at this name is the new one already.
            if name not in journal.renamed or os.path.lexists(self.path_of(name)):
                _remove(self.place_of(name))
        for name in journal.patched:
            self._patch(name, durable=durable)
        for name in journal.renamed:
            with suppress(FileNotFoundError):  # moved in an earlier replay
                os.replace(self.path_of(name), self.place_of(name))
        if durable:  # otherwise the old files or the journal could be gone before the new names exist
            sync_directory(self.directory)
        for name in journal.removed:
            _remove(self.place_of(name))
        if durable and journal.removed:
            sync_directory(self.directory)

    def _patch(self, name: str, *, durable: bool) -> None:
        head = self.head_of(name)
        if head is None:
            return
        fd = os.open(self.place_of(name), os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        try:
            write_at(fd, 0, memoryview(head))
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def write_head(self, name: str, head: bytes, before: bytes, *, durable: bool) -> None:
        """Stage a new header together with the old one."""
        path, like = self.path_of(name + HEAD_SUFFIX), self.place_of(name)
        try:
            _write_whole(path, [head, before], like=like, durable=durable)
        except BaseException:
            _remove(path)
            raise

    def head_of(self, name: str) -> bytes | None:
        """Return the new header for a file, or None if another file has taken its place.

        A file that a dead process was editing has bytes of both headers.
        """
        try:
            both = _read_regular(self.path_of(name + HEAD_SUFFIX))
            now = b"" if os.path.islink(self.place_of(name)) else _read_regular(self.place_of(name), len(both) // 2)
        except FileNotFoundError:
            return None
        new, old = both[: len(both) // 2], both[len(both) // 2 :]
        return new if _is_mixture(now, new, old) else None

    def drop(self) -> None:
        """Remove everything except the lock, the journal first: without its files it would describe a broken set."""
        _remove(self._commit_path)
        for entry in _entries(self.path):
            if entry != LOCK:
                _remove(self.path_of(entry))


def _write_whole(path: str, buffers: Iterable[bytes], *, like: str, durable: bool) -> None:
    """Write a small new file with the read permissions of another."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(fd, 0o600 | os.stat(like).st_mode & 0o044)
        gather_write(fd, [memoryview(buffer) for buffer in buffers])
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _read_regular(path: str, nbytes: int = -1) -> bytes:
    """Read a regular file, and refuse links, pipes and devices."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise IntegrityError("not a regular file", path=path)
        with open(fd, "rb", closefd=False) as file:
            return file.read(nbytes)
    finally:
        os.close(fd)


def _is_mixture(now: bytes, new: bytes, old: bytes) -> bool:
    """Say whether every byte is from one of the two headers."""
    if not len(now) == len(new) == len(old):
        return False
    for start in range(0, len(now), _BLOCK_NBYTES):
        n, a, b = (text[start : start + _BLOCK_NBYTES] for text in (now, new, old))
        if n not in {a, b} and any(byte not in pair for byte, *pair in zip(n, a, b, strict=True)):
            return False
    return True


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def has_staging(directory: str) -> bool:
    """Say whether a save into a directory seems to be running, or was left unfinished."""
    try:
        return any(name.endswith(STAGING_SUFFIX) for name in os.listdir(directory or os.curdir))
    except OSError:
        return False
