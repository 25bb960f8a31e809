"""Sets of files to save over each other, for the tests of transactions."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tensorkeep.transport import PendingCommit, finish_pending_commit, transaction

__all__ = ["CASES", "STAGING", "Case", "files_in", "lay_out", "locked", "read", "replace"]

STAGING = ".model.tensorkeep-staging"


class Case(NamedTuple):
    """A save of one set over another, and how it is to be committed."""

    old: dict[str, bytes]
    new: dict[str, bytes]
    first: tuple[str, ...] = ()
    last: str | None = None
    patched: tuple[str, ...] = ()


def _set(save: str, *names: str) -> dict[str, bytes]:
    return {name: f"{save} {name} ".encode() * 500 for name in names}


_PATCHED = {name: content[:4_000].upper() + content[4_000:] for name, content in _set("old", "m-1", "m-2").items()}

CASES = {
    "same names": Case(_set("old", "m-1", "m-2", "index"), _set("new", "m-1", "m-2", "index"), ("index",), "index"),
    "other names": Case(_set("old", "m-1-of-1", "index"), _set("new", "m-1-of-2", "m-2-of-2", "index"), (), "index"),
    "fewer of the same": Case(_set("old", "m-1", "m-2", "index"), _set("new", "m-1", "index"), ("index",), "index"),
    "one to several": Case(_set("old", "model"), _set("new", "m-1", "m-2", "index"), (), "index"),
    "several to one": Case(_set("old", "m-1", "m-2", "index"), _set("new", "model"), (), "model"),
    "one to the same": Case(_set("old", "model"), _set("new", "model"), (), "model"),
    "nothing before": Case({}, _set("new", "m-1", "m-2", "index"), (), "index"),
    "edited in place": Case(
        {**_set("old", "m-1", "m-2", "m-3", "index")},
        {**_PATCHED, **_set("old", "m-3"), **_set("new", "index")},
        (),
        "index",
        ("m-1", "m-2"),
    ),
}


def lay_out(folder: str | Path, files: Mapping[str, bytes]) -> None:
    """Make a folder hold these files and nothing else."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == STAGING:
            for entry in os.listdir(path):
                os.unlink(os.path.join(path, entry))
            os.rmdir(path)
        else:
            os.unlink(path)
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)


def replace(folder: str | Path, case: Case, *, durable: bool = True) -> None:
    """Save the new set of a case."""
    with transaction(folder, "model", durable=durable) as saving:
        for name, content in case.new.items():
            if name in case.patched:
                saving.patch(name, content[:4_000])
            elif content != case.old.get(name):
                with saving.file(name) as sink:
                    sink.write([b"?" * 10, content[10:]])
                    sink.rewrite(0, content[:10])
        saving.commit(first=case.first, last=case.last, remove=case.old.keys() - set(case.patched) - {"m-3"})


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Hold the lock that a dead process left, if it left one, so that nobody finishes its save."""
    lock = os.path.join(folder, STAGING, "lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT) if os.path.isdir(os.path.dirname(lock)) else -1
    if fd >= 0:
        fcntl.flock(fd, fcntl.LOCK_EX)
    yield
    if fd >= 0:
        os.close(fd)


def files_in(folder: str | Path) -> dict[str, bytes]:
    """Return the files of a folder as anybody sees them, without what is staged."""
    return {name: _content(os.path.join(folder, name)) for name in os.listdir(folder) if name != STAGING}


def read(folder: str | Path, case: Case) -> dict[str, bytes]:
    """Return the set that a reader sees, which finishes a save or reads past it."""
    pending = finish_pending_commit(folder, "model")
    return files_in(folder) if pending is None else _read_past(pending, folder, case)


def _read_past(pending: PendingCommit, folder: str | Path, case: Case) -> dict[str, bytes]:
    found = {}
    for name in {*case.old, *case.new}:
        path = pending.resolve(name)
        if os.path.exists(path) and not pending.is_removed(name):
            head = pending.head_of(name) or b""
            found[name] = head + _content(path)[len(head) :]
    return found


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
