"""Large files that lose their last name: the caller need not wait for the file system to free their blocks.

ext4 takes 0.2 to 0.4 s per GB for that, inside the rename or unlink. So a descriptor keeps the blocks until a thread
has closed it. The next save lets the thread finish first, because it may need the room, and so does a fork, because a
child would keep the blocks for as long as it lives.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tensorkeep.parallel import try_to_start
from tensorkeep.transport.system._mounts import mapping_pays
from tensorkeep.transport.system._platform import HANDLES_OPEN_FILES

_MIN_NBYTES: Final = 16 * 2**20
"""Size from which freeing takes longer than handing it to a thread."""

_MAX_FILES: Final = 64
"""Descriptors kept at a time, far below any limit of a process."""

_threads: list[threading.Thread] = []


@contextmanager
def freed_in_background(paths: Iterable[str]) -> Iterator[None]:
    """Let files lose their names in the block; afterwards, free those that have no other."""
    kept: list[int] = []
    try:
        for path in paths:
            if len(kept) < _MAX_FILES and (fd := _keep(path)) is not None:
                kept.append(fd)
        yield
    finally:
        if kept:
            _close_in_background(kept)


def finish_freeing() -> None:
    """Wait until all blocks are free."""
    while _threads:
        thread = _threads[-1]
        thread.join()
        with suppress(ValueError):  # another thread waited for it too
            _threads.remove(thread)


def _keep(path: str) -> int | None:
    """Open a large file that has no other name; None for any other, and where open files cannot be removed."""
    if not HANDLES_OPEN_FILES or not mapping_pays(os.path.dirname(path)):  # NFS renames what is open
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size >= _MIN_NBYTES:
        return fd
    os.close(fd)
    return None


def _close_in_background(kept: list[int]) -> None:
    thread = threading.Thread(target=_close, args=(kept,), name="tensorkeep-free", daemon=True)
    if try_to_start(thread):
        _threads.append(thread)
    else:
        _close(kept)


def _close(kept: list[int]) -> None:
    for fd in kept:
        os.close(fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=finish_freeing)
