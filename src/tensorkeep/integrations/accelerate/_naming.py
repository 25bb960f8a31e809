"""Checkpoints that accelerate numbers itself (`automatic_checkpoint_naming`)."""

from __future__ import annotations

import os
import re
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
from tensorkeep.store import DamagedCheckpointWarning, load_newest_whole
from tensorkeep.transport import delete_directory, delete_moved_aside, local_path, move_aside, recover_directories

_Checked = TypeVar("_Checked")

_NAME: Final = re.compile(r"checkpoint_(0|[1-9][0-9]{0,17})")


def is_numbered(accelerator: Any) -> bool:
    """Say whether the checkpoints of a run are numbered."""
    return bool(accelerator.project_configuration.automatic_checkpoint_naming)


def next_folder(accelerator: Any) -> str:
    """Return the path of the next checkpoint, and create its parent directory."""
    parent = _parent(accelerator)
    path = os.path.join(parent, f"checkpoint_{accelerator.save_iteration}")
    with as_transport_error("could not create the directory", parent):
        os.makedirs(parent, exist_ok=True)
    existing = _numbered(parent)
    highest = max(existing, default=-1)
    if os.path.lexists(path) or highest >= accelerator.save_iteration:
        raise RefusedError(
            "the directory already has checkpoints of another run, which would be taken for newer ones",
            path=path,
            found=os.path.basename(existing.get(highest, path)),
            hint="Continue that run with load_state(); or give this one its own project_dir; or set"
            f" accelerator.project_configuration.iteration = {highest + 1}",
        )
    return path


def next_number(accelerator: Any) -> int:
    """Return the number after the highest of all checkpoints."""
    return max(_numbered(_parent(accelerator)), default=-1) + 1


def newest(accelerator: Any, check: Callable[[str], _Checked]) -> tuple[str, _Checked]:
    """Return the newest whole checkpoint, with what `check` returned for it, and warn of newer ones."""
    parent = _parent(accelerator)
    damage: dict[str, TensorkeepError] = {}
    found = load_newest_whole(
        lambda: [path for _, path in sorted(_numbered(parent).items(), reverse=True)],
        check,
        damage.__setitem__,
        (FormatError, IntegrityError, SourceMissingError),
    )
    if found is None:
        raise next(iter(damage.values()), SourceMissingError("there is no checkpoint yet", path=parent))
    for path, error in damage.items():
        warnings.warn(
            f"{path} is damaged, and {found[0]} is loaded instead: {error}", DamagedCheckpointWarning, stacklevel=2
        )
    return found


def retain(accelerator: Any, saved: str) -> None:
    """Remove the oldest checkpoints, so that no more remain than the run is to keep."""
    limit = accelerator.project_configuration.total_limit
    parent = _parent(accelerator)
    delete_moved_aside(parent)  # of processes that died while they removed one
    if limit is None:
        return
    others = [path for _, path in sorted(_numbered(parent).items()) if path != saved and not os.path.islink(path)]
    for path in others[: max(0, len(others) + 1 - limit)]:
        with as_transport_error("could not remove an old checkpoint", path):
            delete_directory(move_aside(path))


def _parent(accelerator: Any) -> str:
    directory = accelerator.project_dir
    if directory is None:
        raise RefusedError(
            "checkpoints are to be numbered, but the run has no directory",
            expected="a directory",
            hint="Pass one: ProjectConfiguration(project_dir=…)",
        )
    return os.path.join(os.path.abspath(local_path(directory)), "checkpoints")


def _numbered(parent: str) -> dict[int, str]:
    recover_directories(parent)
    if not os.path.isdir(parent):
        return {}
    found = [(match, entry) for entry in os.scandir(parent) if (match := _NAME.fullmatch(entry.name))]
    return {int(match[1]): entry.path for match, entry in found if entry.is_dir()}
