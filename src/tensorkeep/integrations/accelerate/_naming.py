"""The checkpoints of a run that accelerate numbers itself (`automatic_checkpoint_naming`)."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    TensorkeepError,
    as_transport_error,
)
from tensorkeep.transport import recover_directories

_Checked = TypeVar("_Checked")

_NAME: Final = re.compile(r"checkpoint_(0|[1-9][0-9]{0,17})")
_REMOVED: Final = ".tensorkeep-removed"
"""How the name ends of a directory that is on its way out."""


class DamagedCheckpointWarning(UserWarning):
    """A newer checkpoint than the one that was loaded is damaged."""


def is_numbered(accelerator: Any) -> bool:
    """Say whether the checkpoints of a run are numbered."""
    return bool(accelerator.project_configuration.automatic_checkpoint_naming)


def next_folder(accelerator: Any) -> str:
    """Return where the next checkpoint is to be; the directory around it is made."""
    parent = _parent(accelerator)
    path = os.path.join(parent, f"checkpoint_{accelerator.save_iteration}")
    with as_transport_error("could not make the directory", parent):
        os.makedirs(parent, exist_ok=True)
    there = _numbered(parent)
    highest = max(there, default=-1)
    if os.path.lexists(path) or highest >= accelerator.save_iteration:
        raise RefusedError(
            "checkpoints of another run are there already, and would be taken for newer ones",
            path=path,
            found=os.path.basename(there.get(highest, path)),
            hint="Go on with that run, by load_state(); or give this one a project_dir of its own; or number on from"
            f" there, by accelerator.project_configuration.iteration = {highest + 1}",
        )
    return path


def next_number(accelerator: Any) -> int:
    """Return a number that is higher than that of any checkpoint."""
    return max(_numbered(_parent(accelerator)), default=-1) + 1


def newest(accelerator: Any, check: Callable[[str], _Checked]) -> tuple[str, _Checked]:
    """Return the newest checkpoint that is whole, and warn of newer ones that are not."""
    parent = _parent(accelerator)
    damage: dict[str, TensorkeepError] = {}
    for _, path in sorted(_numbered(parent).items(), reverse=True):
        try:
            checked = check(path)
        except (FormatError, IntegrityError, SourceMissingError) as error:
            damage[path] = error.with_traceback(None)
            continue
        for damaged, reason in damage.items():
            warnings.warn(
                f"{damaged} is damaged, and {path} is loaded instead: {reason}",
                DamagedCheckpointWarning,
                stacklevel=2,
            )
        return path, checked
    if not damage:
        raise SourceMissingError("there is no checkpoint yet", path=parent)
    raise damage.pop(next(iter(damage)))


def retain(accelerator: Any, saved: str) -> None:
    """Remove the oldest checkpoints, so that there are no more than the run is to keep."""
    limit = accelerator.project_configuration.total_limit
    parent = _parent(accelerator)
    for name in os.listdir(parent):  # of processes that died while they removed one
        if name.startswith(".") and name.endswith(_REMOVED):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
    if limit is None:
        return
    others = [path for _, path in sorted(_numbered(parent).items()) if path != saved and not os.path.islink(path)]
    for path in others[: max(0, len(others) + 1 - limit)]:
        removed = os.path.join(parent, f".{os.path.basename(path)}{_REMOVED}")
        with as_transport_error("could not remove an old checkpoint", path):
            os.rename(path, removed)  # at once, so that no half of it is ever taken for a checkpoint
            shutil.rmtree(removed)


def _parent(accelerator: Any) -> str:
    directory = accelerator.project_dir
    if directory is None:
        raise RefusedError(
            "checkpoints are to be numbered, and the run has no directory",
            expected="a directory",
            hint="Give one to ProjectConfiguration(project_dir=…)",
        )
    return os.path.join(os.path.abspath(os.path.expanduser(directory)), "checkpoints")


def _numbered(parent: str) -> dict[int, str]:
    recover_directories(parent)
    if not os.path.isdir(parent):
        return {}
    found = [(match, entry) for entry in os.scandir(parent) if (match := _NAME.fullmatch(entry.name))]
    return {int(match[1]): entry.path for match, entry in found if entry.is_dir()}
