"""Writes a checkpoint as the files of another one and a patch: what did not change has one more name on the disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.deltas import DOCUMENT_NAME, PatchedDocument, emit_document
from tensorkeep.deltas.reading import Description, End, Texts
from tensorkeep.errors import as_transport_error
from tensorkeep.kinds.patched import PatchedCheckpoint
from tensorkeep.kinds.safetensors import Checkpoint
from tensorkeep.parallel import Progress
from tensorkeep.patches._difference import difference
from tensorkeep.patches._spool import Spool
from tensorkeep.patches._summary import Summary, write_patch
from tensorkeep.tensors import Prepared
from tensorkeep.transport import publish

BASE: Final = "base"
_SUFFIX: Final = ".patch.safetensors"


def write_patched(
    previous: Checkpoint | PatchedCheckpoint,
    prepared: Prepared,
    directory: str,
    *,
    metadata: Mapping[str, str] | None = None,
    index: Mapping[str, Any],
    durable: bool = True,
    progress: Progress | None = None,
) -> Summary:
    """Write a state as the files of another checkpoint, which get one more name each, and a patch.

    Args:
        previous: An open checkpoint on the same file system. Its tensors are read, and compared with their digests.
        prepared: The state.
        directory: An empty directory.
        metadata: Text by key.
        index: What an index would have beside the sizes.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes compared so far and the total.

    Raises:
        IntegrityError: If a tensor of the other checkpoint is damaged.
        TransportError: If a file cannot be written, or have another name.
    """
    patches = previous.document.patches if isinstance(previous, PatchedCheckpoint) else ()
    names = previous.stored_names() if isinstance(previous, PatchedCheckpoint) else previous.index.file_of_whole()
    name = f"{len(patches) + 1}{_SUFFIX}"
    before = {stored: previous.stored(stored).tensor_to_write() for stored in names}
    after = prepared.to_write
    with Spool(directory) as spool:
        found = difference(before, after, spool, progress=progress)
        texts = [None, None] if list(before) == list(after) else [Texts(names=list(side)) for side in (before, after)]
        description = Description(
            old=End(found.old, texts[0]), new=End(found.new, texts[1]), tensors=found.changes, equal=found.equal
        )
        summary = write_patch(os.path.join(directory, name), description, found.to_write, durable=durable)
    _link_all(previous, directory)
    document = PatchedDocument(
        base=BASE,
        patches=(*patches, name),
        digest=found.new,
        state=prepared.state,
        metadata=None if metadata is None else dict(metadata),
        index=dict(index),
    )
    with publish(os.path.join(directory, DOCUMENT_NAME), durable=durable) as sink:
        sink.write([emit_document(document)])
    return summary


def _link_all(previous: Checkpoint | PatchedCheckpoint, directory: str) -> None:
    """Give the files of a checkpoint, and its patches, other names below a directory."""
    base = previous.base if isinstance(previous, PatchedCheckpoint) else previous
    beside = os.path.dirname(previous.path)
    given = {path: os.path.join(BASE, os.path.basename(path)) for path in (base.path, *_paths_of(base))}
    if isinstance(previous, PatchedCheckpoint):
        given |= {os.path.join(beside, name): name for name in previous.document.patches}
    os.makedirs(os.path.join(directory, BASE), exist_ok=True)
    for path, name in given.items():
        with as_transport_error("could not give the file another name", path):
            os.link(path, os.path.join(directory, name))


def _paths_of(base: Checkpoint) -> list[str]:
    return [source.name for source in base.sources.values()]
