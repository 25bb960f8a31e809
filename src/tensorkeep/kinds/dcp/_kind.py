"""The kind of torch.distributed.checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack

from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.pickles import DEFAULT_LIMITS
from tensorkeep.kinds.base import Checks, Finding, Kind, OpenOptions, Place, names_to_check
from tensorkeep.kinds.dcp._checks import PartChecks
from tensorkeep.kinds.dcp._files import ChunkFiles
from tensorkeep.kinds.dcp._location import DistributedLocation, find_distributed
from tensorkeep.kinds.dcp._open import FileFault, assembled, examine_distributed, open_distributed


def _find(place: Place) -> DistributedLocation | None:
    return None if place.path is None else find_distributed(place.path)


def _check(
    location: DistributedLocation, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack
) -> Checks:
    """Return what can be checked, even if files are missing or truncated."""
    directory = location.directory
    examined = examine_distributed(location, opened, options)
    state, files = examined.state, ChunkFiles(examined.files, options.limits or DEFAULT_LIMITS)
    parts = PartChecks(state, files)
    before = [_finding(fault) for fault in examined.faults]
    for name in state.tensors if names is None else names_to_check(names, state.tensors, directory):
        try:
            assembled(name, state, files, directory, options)
        except TensorkeepError as error:
            chunks = state.tensors[name].chunks
            file = chunks[0].item.file if chunks else os.path.basename(directory)
            before.append(Finding("absent", error.message, file, name, found=error.found))
        parts.add_tensor(name)
    for name, item in state.values.items() if names is None else ():
        if parts.is_there(item):
            try:
                parts.add_value(item.file, files.value(item, options))
            except TensorkeepError as error:
                parts.add_fault(name, item, error)
    n_missing = sum(fault.expected is None for fault in examined.faults)
    return parts.result(before, len(examined.files) + n_missing)


def _finding(fault: FileFault) -> Finding:
    kind = "missing" if fault.expected is None else "truncated"
    return Finding(kind, fault.message, fault.file, expected=fault.expected, found=fault.found)  # type: ignore[arg-type]


DISTRIBUTED = Kind(
    "a checkpoint of torch.distributed.checkpoint",
    _find,
    open_distributed,
    check=_check,
    is_converted=True,
    is_gathered=True,
)
