"""A merged model as a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from tensorkeep.checkpoint import refuse_existing, save_checkpoint
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.tensors import LazyTensors


def save_merged(
    merged: LazyTensors,
    directory: str | os.PathLike[str],
    *,
    max_shard_size: int | str = "5GB",
    sha256: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    encrypt: Encryption | KeyLike | None = None,
) -> None:
    """Save a merged model as `save_checkpoint` does, unless that would replace a checkpoint.

    Args:
        merged: A view that one of the functions beside this one returned.
        directory: Created if its parent exists. Or the URL of a directory in a store.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`.
        sha256: Whether the index gets the SHA-256 of each shard.
        overwrite: Whether to replace a checkpoint in the directory, be it one of the models.
        progress: Called with the bytes written so far and the total, by one thread at a time.
        encrypt: A key, the path of a file with one, or an `Encryption`: the files are then encrypted.

    Raises:
        DestinationExistsError: If there is a checkpoint, and `overwrite` is false.
        RefusedError: If models differ where they must be equal.
        TensorkeepError: If `save_checkpoint` would raise it, or a model cannot be read.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt`.
    """

    def refuse(new: Collection[str] = ()) -> None:
        if not overwrite:
            refuse_existing(os.fspath(directory), "model", (), new)

    refuse()
    save_checkpoint(
        merged,
        directory,
        max_shard_size=max_shard_size,
        sha256=sha256,
        progress=progress,
        before_commit=refuse,
        encrypt=encrypt,
    )
