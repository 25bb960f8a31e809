"""The SHA-256 of every shard, written into the index of a checkpoint that is finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.checkpoint.rewriting._in_place import Change, changing
from tensorkeep.checkpoint.verifying import sha256_of
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds.safetensors import TensorFile, header_digest
from tensorkeep.layout import Index, ShardRecord, index_names, stem_of_weights
from tensorkeep.parallel import ProgressMeter, parallel_map

_MAX_THREADS: Final = 8
"""Threads that make sums; each keeps a core busy, and more only make a disk seek."""


def add_sha256(
    path: str | os.PathLike[str], *, durable: bool = True, progress: Callable[[int, int], None] | None = None
) -> dict[str, str]:
    """Write the SHA-256 of each shard, the name that Git LFS and the Hub give it, into the index.

    Shards that have one are not read. A single file gets an index beside it, since its own bytes cannot hold their
    sum. An index of another library gets digests of the headers too. No other file changes.

    Args:
        path: A directory, an index or a single file.
        durable: Whether to wait until the disk has the index (fsync).
        progress: Called with the bytes read so far and the bytes in all, by one thread at a time. What it raises
            ends the work, and nothing is changed.

    Returns:
        Name of the file to its SHA-256, 64 hexadecimal digits.

    Raises:
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If it is not whole.
        FormatError: If the index or a header is none.
        UnsupportedError: If there are several, the file is one of several shards, or no index can be named after it.
        BusyError: If another process is saving there.
        TransportError: If it cannot be read, or the directory is not writable.
    """
    with changing(path, durable=durable) as change:
        name = change.location.index or _new_index_name(change)
        index = change.index or _index_of(change)
        known = index.shards or {
            file: ShardRecord(shard.source.nbytes, header_digest(shard)) for file, shard in change.shards.items()
        }
        records = _with_sums(known, change.shards, progress)
        if records != index.shards:
            change.stage_index(msgspec.structs.replace(index, shards=records), name)
            change.staging.commit(last=name)
    return {file: record.sha256 for file, record in records.items() if record.sha256 is not None}


def _new_index_name(change: Change) -> str:
    file = change.location.single or ""
    stem = stem_of_weights(file)
    if stem is None:
        raise UnsupportedError(
            "no index can be named after the file",
            path=change.tensors.path,
            expected="a name such as model.safetensors, and not that of a shard",
            found=file,
        )
    return index_names(stem)[0 if stem.rpartition(".")[2].isidentifier() else -1]


def _index_of(change: Change) -> Index:
    """Make the index of a single file."""
    totals = {"total_parameters": change.tensors.n_elements, "total_size": change.tensors.nbytes}
    return Index({name: file for file, shard in change.shards.items() for name in shard}, totals)


def _with_sums(
    records: dict[str, ShardRecord],
    shards: dict[str, TensorFile],
    progress: Callable[[int, int], None] | None,
) -> dict[str, ShardRecord]:
    missing = sorted((file for file in records if records[file].sha256 is None), key=lambda it: -records[it].nbytes)
    meter = ProgressMeter(progress, sum(records[file].nbytes for file in missing))
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(missing))
    sums = parallel_map(
        lambda file: sha256_of(shards[file].source, meter.add), missing, n_threads=n_threads, meter=meter
    )
    found = dict(zip(missing, sums, strict=True))
    return {
        file: msgspec.structs.replace(record, sha256=record.sha256 or found[file]) for file, record in records.items()
    }
