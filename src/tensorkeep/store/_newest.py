"""The newest whole directory of several; some may be damaged or about to be removed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from tensorkeep.errors import TensorkeepError

_Loaded = TypeVar("_Loaded")


class DamagedCheckpointWarning(UserWarning):
    """A newer checkpoint is damaged or incomplete, so an older one was taken."""


def load_newest_whole(
    newest_first: Callable[[], Iterable[str]],
    load: Callable[[str], _Loaded],
    on_damage: Callable[[str, TensorkeepError], None],
    errors: tuple[type[TensorkeepError], ...] = (TensorkeepError,),
    is_there: Callable[[str], bool] = os.path.isdir,
) -> tuple[str, _Loaded] | None:
    """Load the first directory for which `load` raises none of `errors`; return its path and what was loaded."""
    damaged: set[str] = set()
    while True:
        for path in newest_first():
            if path in damaged:
                continue
            try:
                return path, load(path)
            except errors as error:
                if not is_there(path):
                    break  # removed meanwhile, which only happens once newer ones exist: list them again
                damaged.add(path)
                on_damage(path, error)
        else:
            return None
