"""Whether every byte of files of pickles is the one that was saved, as far as their archives say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

from tensorkeep.kinds import Finding, Verification
from tensorkeep.kinds.pickles import PickleFile, PickleSet
from tensorkeep.kinds.storage_crc32 import Summed, sum_of, summed_storages
from tensorkeep.parallel import ProgressMeter, parallel_map

_MAX_THREADS: Final = 8


def verify_pickled(
    tensors: PickleFile | PickleSet,
    path: str,
    names: Iterable[str] | None,
    progress: Callable[[int, int], None] | None,
) -> Verification:
    """Hold storages against the sums that torch's archives have of them; a part of a storage cannot be checked."""
    chosen = list(tensors if names is None else tensors.select(*([names] if isinstance(names, str) else names)))
    files = tensors.files if isinstance(tensors, PickleSet) else {os.path.basename(path): tensors}
    places = tensors.places if isinstance(tensors, PickleSet) else {name: (tensors, name) for name in chosen}
    owned = {shard: [places[name][1] for name in chosen if places[name][0] is file] for shard, file in files.items()}
    summed = [(shard, one) for shard, file in files.items() for one in summed_storages(file, owned[shard])]
    meter = ProgressMeter(progress, sum(len(one.span) for _, one in summed))

    def check(task: tuple[str, Summed]) -> Finding | None:
        shard, one = task
        found = sum_of(one, meter)
        span = (one.span.start, one.span.stop)
        message = f"the bytes of tensor `{one.tensor}` are not those that were saved"
        facts = {"expected": f"CRC-32 {one.crc:#010x}", "found": f"{found:#010x}"}
        return None if found == one.crc else Finding("data", message, shard, one.tensor, span, **facts)

    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(summed))
    findings = [finding for finding in parallel_map(check, summed, n_threads=n_threads, meter=meter) if finding]
    unprotected = [name for name in chosen if not _has_sum(*places[name])]
    return Verification(
        path=path,
        findings=tuple(findings),
        n_shards=len(files),
        n_tensors=len(tensors),
        n_checked=len(chosen) - len(unprotected),
        n_unprotected=len(unprotected),
        nbytes_checked=sum(len(one.span) for _, one in summed),
        n_sha256=0,
    )


def _has_sum(file: PickleFile, name: str) -> bool:
    """Say whether a tensor's bytes are part of what has a sum; arrays in the pickle were checked with it."""
    record = file.tensors.get(name)
    return record is None or (record.storage is not None and record.storage.key in file.document.crcs)
