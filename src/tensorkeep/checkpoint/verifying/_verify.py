"""Whether every byte of whatever is at a path is the one that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from tensorkeep.checkpoint.verifying._run import run_checks
from tensorkeep.errors import SelectionError
from tensorkeep.kinds import OpenOptions, Place, Verification
from tensorkeep.kinds.registry import find_kind
from tensorkeep.transport import listing_cache


def verify(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    sample: float | None = None,
    variant: str | None = None,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check a checkpoint against the digests that were saved with it.

    A directory that has a manifest (`tensorkeep.checkpoint.save_folder`), such as the checkpoint of a trainer, is
    checked with every file that it lists, unless only some tensors are asked for.

    Index and headers are always checked whole. Damage is not an error here: it is listed.

    What torch.distributed.checkpoint wrote has no digests: each part of each tensor must be there with the declared
    dtype and shape, and match the CRC-32 in its archive.

    The archives of `torch.save` have a CRC-32 of each storage, which torch never looks at; storages of the chosen
    tensors are compared with it.

    Args:
        path: A directory, an index or a file.
        names: Tensors whose bytes are checked, or shell patterns for their names; all if None.
        sample: Fraction of the bytes to check, above 0 and up to 1; tensors are drawn at random.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        seed: Makes the sample the same each time.
        progress: Called with the bytes checked so far and the bytes in all, by one thread at a time. What it raises
            ends the work.

    Returns:
        What was checked and found.

    Raises:
        SourceMissingError: If there is no checkpoint.
        IndexFileError: If the index cannot be parsed.
        HeaderError: If a single file is neither a safetensors file nor one of pickles.
        PickleError: If a pickle is malformed, or contradicts itself or its file.
        ArchiveError: If a pickle's archive is malformed or damaged.
        LimitError: If a pickle is over a bound.
        IntegrityError: If the index, or the header of a single file, is not the one that was written, or a single
            file of another save lies beside an index.
        TensorNotFoundError: If a name is not in the checkpoint.
        SelectionError: If the sample is not such a fraction.
        UnsupportedError: If a directory has several checkpoints, or digests are of a later version.
        TransportError: If the index, or a single file, cannot be read.
    """
    if sample is not None and not (isinstance(sample, int | float) and 0 < sample <= 1):
        raise SelectionError(
            "`sample` must be a fraction of the bytes", expected="more than 0, at most 1", found=repr(sample)
        )
    is_all = names is None and sample is None and variant is None
    with listing_cache(os.fspath(path)) as given, ExitStack() as opened:
        found = find_kind(Place(given, variant=variant, trusts_names=False), with_manifests=is_all)
        checks = found.checks(OpenOptions(variant=variant, dangerous="record"), names, opened)
        return run_checks(checks, str(given), sample=sample, seed=seed, progress=progress)
