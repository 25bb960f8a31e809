"""Unfinished saves of this process, so that an abandoned one does not block the next.

torch calls `finish` only if all ranks succeeded. If one did not, the first rank still has the lock of the directory,
or files in a store that no index names, until it saves again.
"""

from __future__ import annotations

import threading

from tensorkeep.checkpoint import RankSave
from tensorkeep.errors import UnsupportedError

_saves: dict[str, tuple[RankSave, threading.Thread]] = {}


def begin(save_id: str, save: RankSave) -> None:
    """Register a save of this thread."""
    abandon_broken()
    _saves[save_id] = save, threading.current_thread()


def end(save_id: str) -> RankSave:
    """Return the save that `finish` was called for."""
    save, _ = _saves.pop(save_id, (None, None))
    if save is None:
        raise UnsupportedError(
            "the save was abandoned: the same thread began another one before this one had ended",
            hint="Save with torch.distributed.checkpoint, and wait for a save before the next one begins",
        )
    return save


def abandon(save_id: str) -> None:
    """Abandon a save if it is registered."""
    save, _ = _saves.pop(save_id, (None, None))
    if save is not None:
        save.abandon()


def abandon_broken() -> None:
    """Abandon saves of this thread, which is about to begin another, and saves of threads that have ended."""
    current = threading.current_thread()
    for save_id, (_, thread) in list(_saves.items()):
        if thread is current or not thread.is_alive():
            abandon(save_id)
