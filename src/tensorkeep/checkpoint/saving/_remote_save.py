"""Tensors of one process to a store: the shards side by side, and then the switch to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.checkpoint.saving._remote_commit import RemoteCommit
from tensorkeep.checkpoint.saving._shard_contents import index_of, tensors_of
from tensorkeep.checkpoint.saving._shard_upload import UploadedFile, remove_uploaded
from tensorkeep.layout import Shard, ShardPlan
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import Prepared, Sealing, file_body
from tensorkeep.transport import RemotePath

_N_SHARDS_AT_ONCE: Final = 4


def upload(
    plan: ShardPlan,
    prepared: Prepared,
    directory: RemotePath,
    *,
    stem: str,
    metadata: Mapping[str, str] | None,
    index_file: str | None,
    index_metadata: Mapping[str, Any],
    sha256: bool,
    meter: ProgressMeter,
) -> None:
    """Save a checkpoint to a store, complete or not at all."""
    switch = RemoteCommit(directory, stem)
    index_file = switch.index_file(index_file)
    if index_file is None:
        only = plan.shards[0]
        body = file_body(tensors_of(only, prepared), metadata, state=prepared.state, sealing=Sealing())
        directory.joined(only.file).put(body, on_written=meter.counting())
        return
    sending = switch.sending(index_file, metadata, sha256=sha256)
    sent: dict[str, UploadedFile] = {}

    def send(shard: Shard) -> None:
        to_write = tensors_of(shard, prepared)
        sent[shard.file] = sending.send(directory, shard.file, to_write, meter.counting())

    try:
        n_threads = min(_N_SHARDS_AT_ONCE, len(plan.shards))
        parallel_map(send, plan.shards, n_threads=n_threads, meter=meter)
    except BaseException:
        remove_uploaded(directory, [sending.name_of(shard.file) for shard in plan.shards])
        raise
    switch.commit(index_file, lambda records: index_of(plan, prepared, records, index_metadata), sent)
