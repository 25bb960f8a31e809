"""Saves of a net to the URL of a directory: each is a step of a store, numbered by the epochs it was trained."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Final

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.integrations.skorch._names import CHECKPOINT, HISTORY
from tensorkeep.integrations.skorch._sets import SavedNet
from tensorkeep.store import CheckpointStore
from tensorkeep.transport import is_in_store, join, local_path

_MONITOR: Final = "valid_loss"
"""The metric by which a new store finds the best step; nets without validation have none."""


def located(directory: str | os.PathLike[str]) -> str:
    """Return a local path, with `~` and `file://` resolved, or a URL."""
    return os.fspath(directory) if is_in_store(directory) else local_path(directory)


def store_at(directory: str | os.PathLike[str], prefix: str) -> CheckpointStore:
    """Return the store for a callback; a prefix of file names is a directory there."""
    name = prefix.strip("_-. ")
    url = os.fspath(directory)
    return CheckpointStore(join(url, name) if name else url)


def save_step(store: CheckpointStore, states: Mapping[str, Any], history: list[Any]) -> None:
    """Save all parts of a net, with the numbers of its last epoch as metrics."""
    last = history[-1] if history else {}
    numbers = {name: value for name, value in last.items() if isinstance(value, int | float)}
    store.save(len(history), states[CHECKPOINT], numbers if _MONITOR in numbers else None)


def read_step(store: CheckpointStore, without: Collection[str], classes: Mapping[str, type]) -> SavedNet | None:
    """Return the last save that is whole, or None if nothing was saved yet."""
    if not store.steps():
        return None
    parts = store.load(classes=classes)
    if not isinstance(parts, dict) or HISTORY not in parts:
        raise StateDictMismatchError("the last step of the store does not hold all parts of a net", path=store.root)
    found = {part: state for part, state in parts.items() if part not in without}
    return SavedNet(found, dict.fromkeys(found, store.root), is_whole=len(found) == len(parts))
