"""Reads headers for `tensorkeep inspect`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorkeep
from tensorkeep.cli.reports._report import Order, Report, report_on
from tensorkeep.cli.reports._state import StateReport, read_state
from tensorkeep.transport import finish_pending_commit

if TYPE_CHECKING:
    from tensorkeep.kinds import Description


def read_report(path: str, *, variant: str | None, pattern: str | None, order: Order) -> Report:
    """Read the headers of a checkpoint, and nothing else."""
    is_alone = path.endswith(".safetensors") and not os.path.isdir(path) and not _is_under_way(path)
    with tensorkeep.open(path, variant=variant, check=not is_alone, dangerous="record") as opened:
        description = opened.describe()
    return report_on(description, path=path, state=state_of(description), pattern=pattern, order=order)


def state_of(description: Description) -> StateReport | None:
    """Read the metadata about a state, as far as it is readable."""
    return read_state(description.state, description.stored)


def _is_under_way(path: str) -> bool:
    """Say whether the file belongs to a committed save that this process cannot finish."""
    directory, name = os.path.split(path)
    return finish_pending_commit(directory or os.curdir, name.removesuffix(".safetensors")) is not None
