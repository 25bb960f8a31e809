"""The digests of the blocks of every shard, written beside the files of an existing checkpoint."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from tensorkeep.checkpoint.rewriting._in_place import edit_session
from tensorkeep.checkpoint.verifying import tree_over
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds.safetensors import TensorFile
from tensorkeep.layout import blocks_name
from tensorkeep.parallel import Progress, ProgressMeter, parallel_map

_MAX_THREADS: Final = 8
"""Threads that hash; each keeps a core busy."""


def add_block_digests(
    path: str | os.PathLike[str], *, durable: bool = True, progress: Progress | None = None
) -> dict[str, str]:
    """Write block digests beside the shards, so that slices can be checked without reading the rest.

    With them, `open(verify=True)` checks a slice by the blocks that it touches, remotely too. All tensors are read
    and compared with their own digests. The new files, a 2,000th of the size of the shards, and the index that has
    their roots appear at once or not at all; no other file changes. Shards that have such a file are not read. A
    single file gets an index beside it.

    Args:
        path: A directory, an index or a single file.
        durable: Whether to wait until everything is on the disk (fsync).
        progress: Called with the bytes read so far and the total, by one thread at a time. An exception from it ends
            the work, and nothing changes.

    Returns:
        Name of the shard to the root of its digests, 64 hexadecimal digits.

    Raises:
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If the checkpoint is not whole, or the bytes of a tensor are not those that were saved.
        FormatError: If the index or a header is malformed.
        UnsupportedError: If tensors have no digests, there are several checkpoints, the file is one of several
            shards, or its name allows no index.
        BusyError: If another process is saving there.
        TransportError: If a file cannot be read, or the directory is not writable.

    Examples:
        >>> tensorkeep.save_checkpoint({"w": numpy.ones(100_000)}, "checkpoint")
        >>> list(tensorkeep.add_block_digests("checkpoint"))
        ['model.safetensors']
    """
    with edit_session(path, durable=durable) as session:
        name, index = session.index_to_write()
        records = dict(index.shards or {})
        missing = sorted(
            (file for file in records if not _is_there(session.shards[file])),
            key=lambda file: -records[file].nbytes,
        )
        for file in missing:
            _require_digests(session.shards[file])
        meter = ProgressMeter(progress, sum(session.shards[file].nbytes for file in missing))
        trees = parallel_map(
            lambda file: tree_over(session.shards[file], meter.add),
            missing,
            n_threads=min(_MAX_THREADS, os.cpu_count() or 1, len(missing)),
            meter=meter,
        )
        for file, tree in zip(missing, trees, strict=True):
            records[file] = msgspec.structs.replace(records[file], blocks=tree.root.hex())
            with session.staging.file(blocks_name(file), syncs=False) as sink:
                sink.write([tree.file])
        if missing:
            session.staging.sync(blocks_name(file) for file in missing)
            session.stage_index(msgspec.structs.replace(index, shards=records), name)
            session.staging.commit(last=name)
    return {file: record.blocks for file, record in records.items() if record.blocks is not None}


def _is_there(shard: TensorFile) -> bool:
    return shard.blocks is not None and os.path.exists(shard.blocks.path)


def _require_digests(shard: TensorFile) -> None:
    if shard.seal is None:
        raise UnsupportedError(
            "the tensors have no digests that would say what their blocks should be",
            path=shard.path,
            hint="`tensorkeep reshard` makes a copy with digests",
        )
