"""Read a checkpoint consistently, even if a save replaces it during the read.

A reader with the old index and a new shard would see damage where there is none. So findings and errors count only if
the checkpoint is still the same one afterwards.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.errors import TensorkeepError
from tensorkeep.kinds.base import Finding, OpenOptions
from tensorkeep.kinds.safetensors._duplicate import without_duplicate
from tensorkeep.kinds.safetensors._encrypted_index import refuse_lone_shard
from tensorkeep.kinds.safetensors._examine import Examination, examine, open_shard
from tensorkeep.kinds.safetensors._file import TensorFile, file_over
from tensorkeep.layout import Location, index_names, locate, weights_name
from tensorkeep.transport import (
    exists,
    forget_listing,
    has_commit,
    has_staging,
    identity,
    is_directory,
    is_remote,
    open_source,
)

if TYPE_CHECKING:
    from tensorkeep.trust import Proof

_ATTEMPTS: Final = 50
"""How often to read a checkpoint that saves keep replacing."""

_PAUSE_S: Final = 0.01
"""Seconds before reading again: about as long as a save takes to move its files into place."""


class Reading(msgspec.Struct, frozen=True):
    """A checkpoint that was read consistently.

    Attributes:
        location: Its files; None for a file that has no usual name.
        files: File name to open file, for those that could be opened.
        examination: The index and headers, compared; None for a single file.
    """

    location: Location | None
    files: dict[str, TensorFile]
    examination: Examination | None = None

    @property
    def findings(self) -> list[Finding]:
        """Everything that is wrong."""
        return self.examination.findings if self.examination else []


def read_consistently(path: str, options: OpenOptions) -> Reading:
    """Find a checkpoint, and read its index and all headers; again if a save replaced it."""
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
        if not reading.findings or not _is_replaced(path, options.variant, before):
            return reading
        if attempt == _ATTEMPTS:
            return _without_strays(reading)


def _read(path: str, location: Location | None, options: OpenOptions) -> Reading:
    if location is None:
        file = file_over(open_source(path, backend=options.backend), options)
        return Reading(None, {os.path.basename(path): file})
    if options.proof is not None and is_directory(path):
        _refuse_missing(location, options.proof)
    location = without_duplicate(location, options)
    if location.index is None:
        file = open_shard(location, location.name, options)
        refuse_lone_shard(file, path)
        return Reading(location, {os.path.basename(location.entry): file})
    examination = examine(location, options)
    return Reading(location, examination.files, examination)


def _refuse_missing(location: Location, proof: Proof) -> None:
    """Refuse a directory without a signed index or file of its checkpoint: what is left could mean something else."""
    for name in (weights_name(location.stem), *index_names(location.stem)):
        if name not in {location.index, location.single} and not exists(location.path_of(name)):
            proof.refuse_missing(name)


def _without_strays(reading: Reading) -> Reading:
    """Leave out files that the index does not list: a save may have put them there for the next index."""
    examination = reading.examination
    if examination is None:
        return reading
    damage = [finding for finding in examination.findings if finding.is_damage]
    return msgspec.structs.replace(reading, examination=msgspec.structs.replace(examination, findings=damage))


def _identity(location: Location | None) -> tuple[object, ...]:
    """Return a value that changes when a save replaces the checkpoint, is about to, or has just finished."""
    if location is None or (location.index is None and is_remote(location.entry)):  # objects are replaced atomically
        return ()
    file = identity(location.entry)
    # Asked after the file: a save that put it there since `locate` may not have removed the old files yet.
    is_pending = not is_remote(location.entry) and has_commit(location.directory or os.curdir, location.stem)
    return (location.entry, is_pending, *file) if file else ()


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
