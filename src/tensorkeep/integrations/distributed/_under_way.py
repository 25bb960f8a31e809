"""Saves of this process that are under way, so that one that was broken off does not stand in the way of the next.

Whether all ranks came through is told to `finish`, which is not called where torch finds that one did not. The first
rank then still has the lock of the directory, until it saves there again.
"""

from __future__ import annotations

import os
import threading

from tensorkeep.checkpoint import JointPlan, JointSave
from tensorkeep.integrations.distributed._ways import Options

__all__ = ["abandon", "begin", "commit"]

_Key = tuple[str, str, str | None]

_saves: dict[_Key, tuple[JointSave, threading.Thread]] = {}


def begin(plan: JointPlan, directory: str, options: Options) -> JointSave:
    """Begin a save; one into the same place that this thread, or one that has ended, began is abandoned.

    Args:
        plan: Which files there will be.
        directory: Where it goes.
        options: What the user wants.

    Raises:
        TensorkeepError: As `JointSave` raises it.
    """
    key = (os.path.realpath(directory), options.base_name, options.variant)
    older, thread = _saves.get(key, (None, None))
    if older is not None and thread is not None and (thread is threading.current_thread() or not thread.is_alive()):
        abandon(older)
    save = JointSave(
        plan,
        directory,
        metadata=options.metadata,
        sha256=options.sha256,
        durable=options.durable,
        **options.naming,
    )
    _saves[key] = save, threading.current_thread()
    return save


def commit(save: JointSave, digests: dict[str, bytes]) -> None:
    """Switch to the new files.

    Args:
        save: That was begun here.
        digests: Name of each tensor to the BLAKE3 of its bytes.

    Raises:
        TensorkeepError: As `JointSave.commit` raises it.
    """
    try:
        save.commit(digests)
    finally:
        _forget(save)


def abandon(save: JointSave) -> None:
    """Leave everything as it was.

    Args:
        save: That was begun here.
    """
    try:
        save.abandon()
    finally:
        _forget(save)


def _forget(save: JointSave) -> None:
    for key, (known, _) in list(_saves.items()):
        if known is save:
            del _saves[key]
