"""A model of what a disk has when the power goes: all that was synced, and of the rest any part.

Bytes are on the disk when their file was synced. A name is there, or gone, when its directory was; of changes of
names that were not, any may have reached the disk: the first so many, as on a file system with a journal, or some.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

__all__ = ["Moment", "Recorder"]

Names = dict[str, int]


class Change(msgspec.Struct, frozen=True):
    """A change of names: a file gets one, loses one, or both; None for a directory's own."""

    gone: str | None
    new: str | None
    inode: int

    @property
    def directory(self) -> str:
        """The directory that must be synced for this to last."""
        return os.path.dirname(self.new or self.gone or "")


class Moment(msgspec.Struct, frozen=True):
    """What happened until one moment.

    Attributes:
        changes: Changes of names so far, in order.
        lasting: Numbers of those that the disk has.
        written: Number of a file to its bytes.
        synced: Number of a file to those that the disk has.
    """

    changes: tuple[Change, ...]
    lasting: frozenset[int]
    written: dict[int, bytes]
    synced: dict[int, bytes]

    def disks(self) -> Iterator[dict[str, bytes | None]]:
        """Give what the disk may hold: path to bytes, None for a directory."""
        n = len(self.changes)
        first = next((number for number in range(n) if number not in self.lasting), n)
        prefixes = [range(stop) for stop in {first, (first + n) // 2, max(first, n - 1), n}]
        chance = random.Random(n)
        parts = [[number for number in range(n) if chance.random() < 0.5] for _ in range(2)] if first < n else []
        for reached in (*prefixes, *parts):
            names: Names = {}
            for number, change in enumerate(self.changes):
                if number in reached or number in self.lasting:
                    if change.gone is not None:
                        names.pop(change.gone, None)
                    if change.new is not None:
                        names[change.new] = change.inode
            for contents in (self.synced, self.written):
                yield {
                    path: None if inode == 0 else contents.get(inode, b"")
                    for path, inode in sorted(names.items())
                    if os.path.dirname(path) in names or path == ""
                }


class Recorder:
    """Watches the calls that change a directory and one below it.

    Args:
        directory: Where they happen; what is there is on the disk.
    """

    def __init__(self, directory: Path) -> None:
        self.moments: list[Moment] = []
        self._root = os.path.realpath(directory)
        self._names: Names = {"": 0}
        self._written: dict[int, bytes] = {}
        self._synced: dict[int, bytes] = {}
        self._changes: list[Change] = [Change(None, "", 0)]
        self._lasting: set[int] = {0}
        self._fds: dict[int, str] = {}
        self._inodes = itertools.count(1)
        for path in sorted(directory.iterdir()):
            self._add(path.name)
            self._lasting.add(len(self._changes) - 1)
            self._written[self._names[path.name]] = self._synced[self._names[path.name]] = path.read_bytes()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Watch from now on."""
        for name in ("open", "writev", "write", "pwrite", "fsync", "replace", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, self._watched(getattr(os, name), getattr(self, f"_{name}")))

    def _watched(self, call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            note(result, *args)
            self.moments.append(
                Moment(tuple(self._changes), frozenset(self._lasting), dict(self._written), dict(self._synced))
            )
            return result

        return watched

    def _relative(self, path: str) -> str:
        relative = os.path.relpath(
            os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), self._root
        )
        return "" if relative == "." else relative

    def _add(self, path: str, inode: int | None = None) -> None:
        self._names[path] = next(self._inodes) if inode is None else inode
        self._changes.append(Change(None, path, self._names[path]))

    def _open(self, fd: int, path: str, flags: int, *_: Any) -> None:
        name = self._relative(path)
        self._fds[fd] = name
        if flags & os.O_CREAT and name not in self._names:
            self._add(name)
            self._written[self._names[name]] = b""

    def _write(self, _: Any, fd: int, *__: Any) -> None:
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            self._written[self._names[self._fds[fd]]] = file.read()

    _writev = _pwrite = _write

    def _fsync(self, _: Any, fd: int) -> None:
        inode = self._names[self._fds[fd]]
        if inode:
            self._synced[inode] = self._written[inode]
        else:
            self._lasting |= {n for n, change in enumerate(self._changes) if change.directory == self._fds[fd]}

    def _replace(self, _: Any, source: str, target: str) -> None:
        gone, new = self._relative(source), self._relative(target)
        self._names[new] = self._names.pop(gone)
        self._changes.append(Change(gone, new, self._names[new]))
        self._fds = {fd: new if path == gone else path for fd, path in self._fds.items()}

    def _unlink(self, _: Any, path: str) -> None:
        gone = self._relative(path)
        self._changes.append(Change(gone, None, self._names.pop(gone)))

    def _mkdir(self, _: Any, path: str, *__: Any) -> None:
        self._add(self._relative(path), 0)

    _rmdir = _unlink
