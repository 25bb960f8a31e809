"""Reads headers for `tensorkeep inspect`."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import tensorkeep
from tensorkeep.cli.reports.inspecting._report import Order, Report, report_on
from tensorkeep.cli.reports.inspecting._state import StateReport, read_state
from tensorkeep.formats.safetensors import describe_file
from tensorkeep.transport import finish_pending_commit, open_source

if TYPE_CHECKING:
    from tensorkeep.formats import Description
    from tensorkeep.kinds import LeftOut


def read_report(path: str, *, variant: str | None, engine: str | None, pattern: str | None, order: Order) -> Report:
    """Read the headers of a checkpoint, and nothing else."""
    left_out: list[LeftOut]
    is_alone = (
        engine is None and path.endswith(".safetensors") and not os.path.isdir(path) and not _is_under_way(path)
    )
    if is_alone:  # opening it would import NumPy, which takes longer than all the rest
        with closing(open_source(path)) as source:
            description, left_out = describe_file(source), []
    else:
        with tensorkeep.open(path, variant=variant, dangerous="record", engine=engine) as opened:
            description, left_out = opened.describe(), opened.left_out()
    state = state_of(description)
    return report_on(description, path=path, state=state, left_out=left_out, pattern=pattern, order=order)


def state_of(description: Description) -> StateReport | None:
    """Read the metadata about a state, as far as it is readable."""
    return read_state(description.state, description.stored)


def _is_under_way(path: str) -> bool:
    """Say whether the file belongs to a committed save that this process cannot finish."""
    directory, name = os.path.split(path)
    return finish_pending_commit(directory or os.curdir, name.removesuffix(".safetensors")) is not None
