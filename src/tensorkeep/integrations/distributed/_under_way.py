"""Saves of this process that are under way, so that one that was broken off does not stand in the way of the next.

Whether all ranks came through is told to `finish`, which is not called where torch finds that one did not. The first
rank then still has the lock of the directory, or files in a store that no index names, until it saves again.
"""

from __future__ import annotations

import threading

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.distributed._ways import Way

_saves: dict[str, tuple[Way, threading.Thread]] = {}


def begin(save_id: str, way: Way) -> None:
    """Note a save of this thread."""
    abandon_broken()
    _saves[save_id] = way, threading.current_thread()


def end(save_id: str) -> Way:
    """Return a save whose `finish` has come."""
    way, _ = _saves.pop(save_id, (None, None))
    if way is None:
        raise UnsupportedError(
            "the save was given up: the same thread began another one before this one had ended",
            hint="Save with torch.distributed.checkpoint, and wait for a save before the next one is begun",
        )
    return way


def abandon(save_id: str) -> None:
    """Give a save up, if it is one of those that are known."""
    way, _ = _saves.pop(save_id, (None, None))
    if way is not None:
        way.abandon()


def abandon_broken() -> None:
    """Give up saves that this thread began, which is about to begin another, or a thread that has ended."""
    here = threading.current_thread()
    for save_id, (_, thread) in list(_saves.items()):
        if thread is here or not thread.is_alive():
            abandon(save_id)
