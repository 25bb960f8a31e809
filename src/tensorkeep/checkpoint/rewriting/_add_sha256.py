"""The SHA-256 of every shard, written into the index of an existing checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.checkpoint.rewriting._in_place import edit_session
from tensorkeep.checkpoint.verifying import sha256_of
from tensorkeep.kinds.safetensors import TensorFile
from tensorkeep.layout import ShardRecord
from tensorkeep.parallel import ProgressMeter, parallel_map

_MAX_THREADS: Final = 8
"""Threads that hash; each keeps a core busy, and more only make a disk seek."""


def add_sha256(
    path: str | os.PathLike[str], *, durable: bool = True, progress: Callable[[int, int], None] | None = None
) -> dict[str, str]:
    """Write the SHA-256 of each shard, by which Git LFS and the Hub know it, into the index.

    Shards that have one are not read. A single file gets an index beside it, since a file cannot hold its own hash.
    The index of another library gets digests of the headers too. No other file changes.

    Args:
        path: A directory, an index or a single file.
        durable: Whether to wait until the index is on the disk (fsync).
        progress: Called with the bytes read so far and the total, by one thread at a time. An exception from it ends
            the work, and nothing changes.

    Returns:
        Name of the file to its SHA-256, 64 hexadecimal digits.

    Raises:
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If the checkpoint is not whole.
        FormatError: If the index or a header is malformed.
        UnsupportedError: If there are several checkpoints, the file is one of several shards, or its name allows no
            index.
        BusyError: If another process is saving there.
        TransportError: If a file cannot be read, or the directory is not writable.
    """
    with edit_session(path, durable=durable) as session:
        name, index = session.index_to_write()
        records = _with_sums(index.shards or {}, session.shards, progress)
        if session.index is None or records != session.index.shards:
            session.stage_index(msgspec.structs.replace(index, shards=records), name)
            session.staging.commit(last=name)
    return {file: record.sha256 for file, record in records.items() if record.sha256 is not None}


def _with_sums(
    records: dict[str, ShardRecord],
    shards: dict[str, TensorFile],
    progress: Callable[[int, int], None] | None,
) -> dict[str, ShardRecord]:
    missing = sorted(
        (file for file in records if records[file].sha256 is None), key=lambda file: -records[file].nbytes
    )
    meter = ProgressMeter(progress, sum(records[file].nbytes for file in missing))
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(missing))
    sums = parallel_map(
        lambda file: sha256_of(shards[file].source, meter.add), missing, n_threads=n_threads, meter=meter
    )
    found = dict(zip(missing, sums, strict=True))
    return {
        file: msgspec.structs.replace(record, sha256=record.sha256 or found[file]) for file, record in records.items()
    }
