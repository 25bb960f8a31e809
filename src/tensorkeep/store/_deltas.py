"""Saving a step as a patch to the previous one, so that it takes only the bytes of what changed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.errors import IntegrityError, SourceMissingError, TransportError
from tensorkeep.kinds.safetensors import SavedDirectory
from tensorkeep.patches.steps import link_files, write_patched
from tensorkeep.store.places import Place, StepRecord, is_replaced, record_members
from tensorkeep.tensors import Prepared

USUAL_PATCHES: Final = 20
"""Steps that are patches between two whole ones."""

_WORTH: Final = 2
"""A patch must take at most one in this many bytes of the whole step."""


class DeltaWarning(UserWarning):
    """Steps are saved whole, because the file system gives files no second names."""


class _NotWorthItError(Exception):
    pass


def write_delta(
    place: Place,
    previous: SavedDirectory,
    prepared: Prepared,
    record: StepRecord,
    options: Mapping[str, Any],
    *,
    durable: bool,
) -> bool:
    """Save a step as a patch to another; return False if it should be saved whole."""
    if any(not alias.is_whole for alias in prepared.aliases.values()):
        return False  # tensors that share parts of their memory are read from files only
    given = options.get("metadata")
    try:
        with place.appearing(record.step, durable=durable) as directory:
            _link(previous, directory)
            summary = write_patched(
                previous,
                prepared,
                directory,
                metadata=prepared.metadata if given is None else given,
                index=record_members(record),
                durable=durable,
                progress=options.get("progress"),
            )
            _refuse_large(summary.nbytes, prepared)
    except (_NotWorthItError, IntegrityError):  # the previous step is damaged: this one must not depend on it
        return False
    return True


def _refuse_large(nbytes: int, prepared: Prepared) -> None:
    if nbytes * _WORTH > sum(tensor.nbytes for tensor in prepared.to_write.values()):
        raise _NotWorthItError


def _link(previous: SavedDirectory, directory: str) -> None:
    try:
        link_files(previous.base, previous.patch_files, directory)
    except SourceMissingError:  # another process removed the previous step
        raise _NotWorthItError from None
    except TransportError as error:
        warnings.warn(f"steps are saved whole, not as deltas: {error}", DeltaWarning, stacklevel=6)
        raise _NotWorthItError from None
    if is_replaced(previous):  # some of the names may be another step's
        raise _NotWorthItError
