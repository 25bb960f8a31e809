"""The hidden directory in which a writer works: made, locked while the writer lives, removed when it leaves.

Sets of files, whole directories and downloads each have one beside their target. Two writers may make, lock and leave
the same one at any time, so:

- entering makes the directory and then takes the lock in it, and starts over if another writer removes it in between;
- leaving releases the lock, which removes the lock file, and then removes the directory if it is empty.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tensorkeep.errors import BusyError
from tensorkeep.transport.atomic._lock import DirectoryLock, take_lock

LOCK: Final = "lock"
"""Name of the lock file."""

_PAUSE_S: Final = 0.005


def enter_working_directory(
    path: str,
    *,
    make: Callable[[str], None] = os.mkdir,
    check: Callable[[], None] = lambda: None,
    patience_s: float = 0.0,
) -> DirectoryLock:
    """Make the directory if it is missing, and lock it; `check` raises if another user may have prepared it."""
    deadline = time.monotonic() + patience_s
    while True:
        with suppress(FileExistsError):
            make(path)
        try:
            check()
            return take_lock(os.path.join(path, LOCK))
        except FileNotFoundError:  # its owner has just left, and removed it
            continue
        except BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)
        except BaseException:
            with suppress(OSError):
                os.rmdir(path)
            raise


def leave_working_directory(path: str, lock: DirectoryLock) -> None:
    """Release the lock, and remove the directory if it is empty."""
    try:
        with suppress(OSError):
            lock.release()
    finally:
        with suppress(OSError):
            os.rmdir(path)
