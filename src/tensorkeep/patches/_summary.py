"""A patch is written, and what was written is said."""

from __future__ import annotations

import os
from collections.abc import Mapping
from errno import EEXIST

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.errors import DestinationExistsError
from tensorkeep.patches.reading import PATCH_KEY, Description, emit_description
from tensorkeep.tensors import Sealing, check_target, write_tensors
from tensorkeep.transport import exists, is_remote


class Summary(msgspec.Struct, frozen=True):
    """A patch that was written.

    Attributes:
        path: The file.
        n_changed: Tensors that keep their dtype and shape, and change.
        n_added: Tensors that come, or replace others of another dtype or shape.
        n_removed: Tensors that go.
        nbytes: Bytes of the differences and tensors that the patch holds.
        is_reversible: Whether it can be undone.
    """

    path: str
    n_changed: int
    n_added: int
    n_removed: int
    nbytes: int
    is_reversible: bool


def refuse_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse to replace something, unless the caller said so."""
    target = check_target(path)
    if not overwrite and (exists(target) if is_remote(target) else os.path.lexists(target)):
        raise DestinationExistsError(
            "there is something at the destination, which would be replaced",
            path=target,
            found=os.path.basename(target),
            hint="Choose another path; overwrite=True (--force) replaces it",
        ).numbered(EEXIST)


def write_patch(
    path: str | os.PathLike[str],
    description: Description,
    to_write: Mapping[str, TensorToWrite],
    *,
    durable: bool,
) -> Summary:
    """Write a patch, complete or not at all."""
    metadata = {PATCH_KEY: emit_description(description)}
    write_tensors(to_write, path, metadata=metadata, sealing=Sealing(), durable=durable)
    changes = description.tensors.values()
    n_changed = sum(change.delta is not None for change in changes)
    n_removed = sum(change.new is None for change in changes)
    return Summary(
        os.fspath(path),
        n_changed,
        len(changes) - n_changed - n_removed,
        n_removed,
        sum(tensor.nbytes for tensor in to_write.values()),
        description.is_reversible,
    )
