"""Writes a patch, and says what was written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from errno import EEXIST

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.deltas.reading import PATCH_KEY, Description, emit_description
from tensorkeep.encryption import Encryption
from tensorkeep.errors import DestinationExistsError, RefusedError
from tensorkeep.tensors import LazyTensors, Sealing, check_target, write_tensors
from tensorkeep.transport import exists, is_remote


class Summary(msgspec.Struct, frozen=True):
    """A patch that was written.

    Attributes:
        path: The file.
        n_changed: Tensors that keep their dtype and shape, and change.
        n_added: Tensors that are new, or replace others of another dtype or shape.
        n_removed: Tensors that are removed.
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


def refuse_own_source(path: str | os.PathLike[str], sources: Iterable[LazyTensors]) -> None:
    """Refuse to write a patch over a file that it is made of, whatever the caller said."""
    target = os.fspath(path)
    if is_remote(target) or not os.path.exists(target):
        return
    files = set[str]()
    for tensors in sources:
        files |= {tensors.path, *(lazy.source.name for lazy in tensors.values() if lazy.source is not None)}
    if any(os.path.exists(file) and os.path.samefile(file, target) for file in files):
        raise RefusedError(
            "the patch would replace a file that it is made of", path=target, hint="Choose another path"
        )


def write_patch(
    path: str | os.PathLike[str],
    description: Description,
    to_write: Mapping[str, TensorToWrite],
    *,
    durable: bool,
    encryption: Encryption | None = None,
) -> Summary:
    """Write a patch, complete or not at all."""
    metadata = {PATCH_KEY: emit_description(description)}
    write_tensors(to_write, path, metadata=metadata, sealing=Sealing(encryption=encryption), durable=durable)
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
