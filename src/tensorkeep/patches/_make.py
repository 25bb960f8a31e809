"""Making a patch of two checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from tensorkeep.arrays import TensorToWrite
from tensorkeep.deltas.reading import Description, End, texts_of
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.parallel import Progress
from tensorkeep.patches._difference import difference
from tensorkeep.patches._spool import Spool, spool_directory
from tensorkeep.patches._summary import Summary, refuse_own_source, refuse_target, write_patch
from tensorkeep.patches.opening import Checkpoint, Opening, encryption_of
from tensorkeep.tensors import LazyTensors


def make(
    old: Checkpoint,
    new: Checkpoint,
    path: str | os.PathLike[str],
    *,
    reversible: bool = False,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> Summary:
    """Write a patch: what turns one checkpoint into another, bit for bit.

        tensorkeep.patches.make("step-100", "step-110", "110.patch.safetensors")
        tensorkeep.patches.apply("worker/model", "110.patch.safetensors")

    A patch is a safetensors file. It holds packed differences for tensors that keep their dtype and shape, the new
    tensors where one is added or replaced, and the digests of both checkpoints. Tensors with equal recorded digests
    are not read; others are read once, in blocks, and compared with their digests.

    Args:
        old: The checkpoint that the patch is for, of any kind: a path, a URL, or what is open.
        new: The checkpoint that it makes.
        path: The file to write, or a URL. It appears complete or not at all.
        reversible: Whether tensors that are removed, or replaced by others of another dtype or shape, are kept in the
            patch, so that `undo` works. All other changes can be undone in any case.
        overwrite: Whether to replace a file at `path`.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes compared so far and the total, by one thread at a time.
        key: The key of what is encrypted of these, the path of a file with it, or several of these; see `open`.
        encrypt: The key to encrypt the patch with, or an `Encryption`. None encrypts it like `new`, or else `old`,
            so that a patch of encrypted checkpoints is never plain.

    Returns:
        What was written.

    Raises:
        DestinationExistsError: If there is something at `path`, and `overwrite` is false.
        RefusedError: If `path` is a file of one of the checkpoints.
        EncryptedError: If a checkpoint is encrypted, and the key is missing or another one.
        IntegrityError: If a tensor that is compared is damaged, by its digest.
        DtypeError: If safetensors has no such dtype (C32, C128).
        TensorkeepError: If `tensorkeep.open` or `tensorkeep.save` would raise it.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.
    """
    refuse_target(path, overwrite=overwrite)
    with ExitStack() as stack:
        opening = Opening(stack, key)
        before, after = (opening.checkpoint(end) for end in (old, new))
        encryption = encryption_of(encrypt, after, before)
        refuse_own_source(path, (before, after))
        spool = stack.enter_context(Spool(spool_directory(path), is_encrypted=encryption is not None))
        found = difference(_to_write(before), _to_write(after), spool, keeps_old=reversible, progress=progress)
        texts = texts_of(before), texts_of(after)
        is_same = texts[0] == texts[1]
        description = Description(
            old=End(found.old, None if is_same else texts[0]),
            new=End(found.new, None if is_same else texts[1]),
            tensors=found.changes,
            equal=found.equal,
        )
        return write_patch(path, description, found.to_write, durable=durable, encryption=encryption)


def _to_write(tensors: LazyTensors) -> dict[str, TensorToWrite]:
    return {name: lazy.tensor_to_write() for name, lazy in tensors.items()}
