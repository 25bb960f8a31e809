"""Reads headers for `tensorkeep inspect`."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import tensorkeep
from tensorkeep.cli.reports.inspecting._report import Order, Report, report_on
from tensorkeep.cli.reports.inspecting._state import StateReport, read_state
from tensorkeep.dtypes import HOLDS_QUANTIZED
from tensorkeep.formats.safetensors import ENCRYPTION_KEY, describe_file
from tensorkeep.transport import finish_pending_commit, open_source
from tensorkeep.variables import TRUST

if TYPE_CHECKING:
    from tensorkeep.encryption import Key
    from tensorkeep.formats import Description
    from tensorkeep.kinds import LeftOut
    from tensorkeep.quantized import Layouts


def read_report(
    path: str,
    *,
    variant: str | None,
    engine: str | None,
    trust: str | None,
    keys: list[Key] | None,
    pattern: str | None,
    order: Order,
) -> Report:
    """Read the headers of a checkpoint, and nothing else."""
    left_out: list[LeftOut] = []
    quantized: Layouts | None = None
    is_alone = (
        engine is None
        and keys is None
        and trust is None
        and not os.environ.get(TRUST)
        and path.endswith(".safetensors")
        and not os.path.isdir(path)
        and not _is_under_way(path)
    )
    # Opening it would import NumPy, which takes longer than all the rest
    description = _described(path) if is_alone else None
    if description is None or _may_be_quantized(description):
        with tensorkeep.open(
            path, variant=variant, dangerous="record", engine=engine, trust=trust, key=keys
        ) as opened:
            if pattern is not None:
                opened.require_names()
            description, left_out = opened.describe(), opened.left_out()
            quantized = opened.quantized() if _may_be_quantized(description) else None
    state = state_of(description)
    return report_on(
        description, path=path, state=state, left_out=left_out, quantized=quantized, pattern=pattern, order=order
    )


def _may_be_quantized(description: Description) -> bool:
    return any(entry.dtype in HOLDS_QUANTIZED for file in description.files for entry in file.entries.values())


def _described(path: str) -> Description | None:
    """Read the header of a single file; None if it is encrypted."""
    with closing(open_source(path)) as source:
        description = describe_file(source)
    return None if any(ENCRYPTION_KEY in (file.metadata or {}) for file in description.files) else description


def state_of(description: Description) -> StateReport | None:
    """Read the metadata about a state, as far as it is readable."""
    return read_state(description.state, description.stored)


def _is_under_way(path: str) -> bool:
    """Say whether the file belongs to a committed save that this process cannot finish."""
    directory, name = os.path.split(path)
    return finish_pending_commit(directory or os.curdir, name.removesuffix(".safetensors")) is not None
