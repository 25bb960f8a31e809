"""Writes a checkpoint as the files of another one and a patch: what did not change has one more name on the disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.deltas import DOCUMENT_NAME, PatchedDocument, emit_document
from tensorkeep.deltas.reading import Description, End, Texts
from tensorkeep.errors import as_transport_error
from tensorkeep.kinds.safetensors import Checkpoint, SavedDirectory
from tensorkeep.parallel import Progress
from tensorkeep.patches._difference import difference
from tensorkeep.patches._spool import Spool
from tensorkeep.patches._summary import Summary, write_patch
from tensorkeep.tensors import Prepared, metadata_with_format
from tensorkeep.transport import publish

_BASE: Final = "base"
_SUFFIX: Final = ".patch.safetensors"


def link_files(base: Checkpoint, patch_files: tuple[str, ...], directory: str) -> None:
    """Give the files of a checkpoint, and patches for it, other names in an empty directory."""
    given = {path: os.path.join(_BASE, os.path.basename(path)) for path in (base.path, *_shards_of(base))}
    given |= {path: os.path.basename(path) for path in patch_files}
    with as_transport_error("could not give the files other names", directory):
        os.mkdir(os.path.join(directory, _BASE))
        for path, name in given.items():
            os.link(os.path.realpath(path), os.path.join(directory, name))


def _shards_of(base: Checkpoint) -> list[str]:
    return [source.name for source in base.sources.values()]


def write_patched(
    previous: SavedDirectory,
    prepared: Prepared,
    directory: str,
    *,
    metadata: Mapping[str, str] | None,
    index: Mapping[str, Any],
    durable: bool,
    progress: Progress | None,
) -> Summary:
    """Write a state as a patch for another checkpoint, beside the linked files of that one."""
    texts = dict(metadata_with_format(metadata))
    earlier = tuple(map(os.path.basename, previous.patch_files))
    name = f"{len(earlier) + 1}{_SUFFIX}"
    before = {stored: previous.stored(stored).tensor_to_write() for stored in previous.stored_names()}
    after = prepared.to_write
    with Spool(directory) as spool:
        found = difference(before, after, spool, progress=progress)
        names = [None, None] if list(before) == list(after) else [Texts(names=list(side)) for side in (before, after)]
        description = Description(
            old=End(found.old, names[0]), new=End(found.new, names[1]), tensors=found.changes, equal=found.equal
        )
        summary = write_patch(os.path.join(directory, name), description, found.to_write, durable=durable)
    document = PatchedDocument(
        base=_BASE,
        patches=(*earlier, name),
        digest=found.new,
        state=prepared.state,
        metadata=texts,
        index=dict(index),
    )
    with publish(os.path.join(directory, DOCUMENT_NAME), durable=durable) as sink:
        sink.write([emit_document(document)])
    return summary
