"""A checkpoint read as one, though a save may replace it meanwhile.

A reader that has the old index and meets a new shard would see damage where there is none. So whatever is wrong
counts only if the checkpoint is still the one that it was when it was looked for.
"""

from __future__ import annotations

import os
import time
from typing import Final

import msgspec

from tensorkeep.errors import TensorkeepError
from tensorkeep.kinds._findings import Finding
from tensorkeep.kinds._options import OpenOptions
from tensorkeep.kinds.safetensors._examine import Examination, examine, open_shard
from tensorkeep.kinds.safetensors._file import TensorFile, file_over
from tensorkeep.layout import Location, locate
from tensorkeep.transport import forget_listing, has_staging, identity, is_remote, open_source

_ATTEMPTS: Final = 50
"""How often a checkpoint is read anew because a save replaced it in the meantime."""

_PAUSE_S: Final = 0.01
"""Seconds before it is read anew; moving the files of a save takes about as long."""


class Reading(msgspec.Struct, frozen=True):
    """What was read of a checkpoint.

    Attributes:
        location: Its files; None for a file whose name says nothing.
        files: Name of the file to the file, open, for those that could be opened.
        examination: What the index and the headers say; None for a single file.
    """

    location: Location | None
    files: dict[str, TensorFile]
    examination: Examination | None = None

    @property
    def findings(self) -> list[Finding]:
        """All that is wrong."""
        return self.examination.findings if self.examination else []


def read_consistently(path: str, options: OpenOptions) -> Reading:
    """Find a checkpoint, and read its index and all headers."""
    attempt = 0
    while True:
        attempt += 1
        before: tuple[object, ...] = ()
        try:
            location = locate(path, options.variant)
            before = _identity(location)
            reading = _read(path, location, options)
        except TensorkeepError:
            if attempt == _ATTEMPTS or not _is_replaced(path, options.variant, before):
                raise
            continue
        if not reading.findings or attempt == _ATTEMPTS or not _is_replaced(path, options.variant, before):
            return reading


def _read(path: str, location: Location | None, options: OpenOptions) -> Reading:
    if location is None:
        file = file_over(open_source(path, backend=options.backend), options)
        return Reading(None, {os.path.basename(path): file})
    if location.index is None:
        return Reading(location, {os.path.basename(location.entry): open_shard(location, location.name, options)})
    examination = examine(location, options)
    return Reading(location, examination.files, examination)


def _identity(location: Location | None) -> tuple[object, ...]:
    """Return what changes when a save replaces the checkpoint, is about to, or has just tidied up."""
    if location is None or (location.index is None and is_remote(location.entry)):  # an object is replaced at once
        return ()
    file = identity(location.entry)
    return (location.entry, location.pending is not None, *file) if file else ()


def _is_replaced(path: str, variant: str | None, before: tuple[object, ...]) -> bool:
    if is_remote(path) and not before:
        return False
    time.sleep(_PAUSE_S)
    forget_listing(path)
    try:
        location = locate(path, variant)
    except TensorkeepError:
        return bool(before) or has_staging(path if os.path.isdir(path) else os.path.dirname(path))
    return _identity(location) != before or (location is not None and location.pending is not None)
