"""Save tensors to a directory or a store: plan, stage every file, commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorkeep.checkpoint.saving._by_executor import fill_by
from tensorkeep.checkpoint.saving._destination import Destination, destination_of, refuse_file_name
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan, plan_whole
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile
from tensorkeep.layout import Index, parse_size
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import Prepared, Ties, check_target, prepare, staging_options, staging_with


def save_checkpoint(
    state: Any,
    directory: str | os.PathLike[str],
    *,
    max_shard_size: int | str = "5GB",
    balance: bool = False,
    split_large: bool = False,
    layout: str | os.PathLike[str] | Index | None = None,
    base_name: str = "model",
    variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    ties: Ties = "share",
    sha256: bool = False,
    block_digests: bool = False,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    index_metadata: Mapping[str, Any] | None = None,
    reuse: Checkpoint | TensorFile | None = None,
    before_commit: Callable[[Mapping[str, str]], None] | None = None,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> None:
    """Save tensors, or a whole training state, to a directory in the Hugging Face layout, complete or not at all.

    The result is `model.safetensors`, or several shards with an index if the tensors do not fit into one. The
    checkpoint in the directory stays whole until the new one is complete; then one step switches. Killed at any
    instant, the directory holds the old or the new checkpoint. Every header carries the digests of its tensors, and
    the index the digests of the headers. Only files of the old checkpoint are removed from the directory. Do not
    write to tensors while they are saved: a file could hold a mixture of two states, which `verify` calls damage.

    Args:
        state: A dict of name to tensor, or any nested data; see `tensorkeep.save`. Tensors are NumPy arrays, torch
            tensors on any device and `LazyTensor` values of any checkpoint (this one included), in any mixture and
            memory layout. The kernel copies tensors that are in files.
        directory: Created if its parent exists. Or the URL of a directory in a store.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"` or `"500 MiB"`. A larger
            tensor gets a shard of its own.
        balance: Whether to make shards as equal in size as the order of the tensors allows.
        split_large: Whether to split larger tensors over shards by rows. Only tensorkeep assembles them again.
        layout: An index or its path: each tensor goes to the file that the index names, split as it says.
        base_name: What file names begin with.
        variant: Such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each shard. None keeps the metadata of an open checkpoint.
        ties: What to do with tensors that share memory: `"share"` stores the memory once, `"copy"` saves each tensor
            on its own, `"error"` raises.
        sha256: Whether the index gets the SHA-256 of each shard, by which Git LFS and the Hub know a file. This takes
            about three times as long as all other digests. A single file gets an index too.
        block_digests: Whether each shard gets a file beside it with the digests of its blocks of 64 KiB, a 2,000th
            of its size: with them, `open(verify=True)` checks slices without reading their whole tensors, and
            `open(trust=)` proves them, remotely and encrypted too. A single file gets an index too.
        durable: Whether to wait until everything is on the disk (fsync), so that not even a power cut loses it.
        progress: Called with the bytes written so far and the total, every few MiB, by one thread at a time. An
            exception from it ends the save and leaves the directory as it was.
        index_metadata: Members of the index beside the sizes: anything that JSON can hold. A single file gets an
            index too.
        reuse: An open checkpoint on the same file system. A shard that would be byte for byte one of its files is not
            written: it becomes another name of that file (a hard link), and either checkpoint can be removed without
            harm to the other. The kernel copies the file where the file system has no hard links.
        before_commit: Called when all files are written and nothing is replaced yet, with the name of each file of
            tensors and its present path or URL. An exception from it ends the save. A single file without an index is
            not among them if it goes to a bucket, where it is written in one step.
        align: Bytes at whose multiples tensors begin in a file, if their size is one too; see `tensorkeep.save`.
        order: Names or shell patterns whose tensors come first in each file, in this order; see `tensorkeep.save`.
        encrypt: The key to encrypt every file and the index with, the path of a file with it, or an `Encryption`; see
            `tensorkeep.save`.

    Raises:
        StateError: If a value is not data: a function, a model, an object of some class. The message has its path.
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `directory` is not path-like, or metadata is not text.
        UnsupportedError: If a size, name or layout is invalid, or a tensor has no data.
        HeaderError: If a name or text cannot be encoded as UTF-8, or is reserved by the format.
        IndexFileError: If `index_metadata` cannot be encoded as JSON.
        LimitError: If names, or data beside the tensors, are too long for a header, or data is nested too deep.
        BusyError: If another process is saving there.
        SourceChangedError: If another save to the same place in a store was committed meanwhile.
        TransportError: If the directory's parent is missing, the directory is not writable, the disk is full, or a
            system call fails otherwise. The directory then holds what it held before.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt`.

    Examples:
        >>> tensors = {"a": numpy.ones(1000), "b": numpy.ones(1000)}
        >>> tensorkeep.save_checkpoint(tensors, "checkpoint", max_shard_size="8kB")
        >>> tensorkeep.open("checkpoint").shard_of("b")
        'model-00002-of-00002.safetensors'
    """
    options = SaveOptions(
        max_shard_nbytes=parse_size(max_shard_size),
        balance=balance,
        split_large=split_large,
        layout=layout,
        base_name=base_name,
        variant=variant,
        metadata=metadata,
        sha256=sha256,
        block_digests=block_digests,
        durable=durable,
        progress=progress,
        index_metadata=index_metadata,
        reuse=reuse,
        before_commit=before_commit,
        align=align,
        order=order,
        encryption=Encryption.of(encrypt),
    )
    refuse_file_name(check_target(directory))
    write_checkpoint(prepare(state, ties=ties), directory, options)


def write_checkpoint(prepared: Prepared, directory: str | os.PathLike[str], options: SaveOptions) -> None:
    """Write a prepared state as `save_checkpoint` does."""
    plan = plan_whole(prepared, options)
    destination = destination_of(os.fspath(directory), plan, options)
    try:
        destination.open()
        if options.executor is None:
            stage_all(destination, plan, options)
        else:
            fill_by(options.executor, destination, plan, options)
        destination.commit()
    finally:
        destination.abandon()


def stage_all(destination: Destination, plan: SavePlan, options: SaveOptions) -> None:
    """Write all files of a plan, several at a time."""
    meter = ProgressMeter(options.progress, plan.nbytes)
    # What changed since the reused checkpoint is mostly small: the disk takes it while the rest is compared.
    files = sorted(plan.files, key=plan.nbytes_of) if options.reuse is not None else list(plan.files)
    n_threads = max(1, min(len(files), destination.max_writers))
    share = staging_options().divided(n_threads)

    def stage(file: str) -> None:
        with staging_with(share):  # what the caller has set, in whatever thread
            destination.stage(file, meter.counting())

    parallel_map(stage, files, n_threads=n_threads, meter=meter)
