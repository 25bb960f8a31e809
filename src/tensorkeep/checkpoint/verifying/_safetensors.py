"""Whether every byte of files of tensors is the one that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint.verifying._sha256 import sha256_of
from tensorkeep.digests import new_hasher
from tensorkeep.errors import TensorkeepError, TensorNotFoundError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.kinds import Finding, OpenOptions, Verification
from tensorkeep.kinds.safetensors import Reading, TensorFile, check_state, read_consistently
from tensorkeep.layout import ShardRecord
from tensorkeep.parallel import ProgressMeter, batches_of, parallel_map
from tensorkeep.tensors import chosen_names
from tensorkeep.transport import ByteRange

_MAX_THREADS: Final = 8
"""Threads that make digests; each keeps a core busy, and more only make a disk seek."""


class _Task(msgspec.Struct, frozen=True):
    """One tensor whose bytes are to be checked."""

    shard: str
    name: str
    file: TensorFile
    span: ByteRange
    digest: bytes


def verify_tensors(
    path: str,
    *,
    names: Iterable[str] | None = None,
    sample: float | None = None,
    variant: str | None = None,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check files of the safetensors format, one or a set with an index; see `verify`."""
    reading = read_consistently(path, OpenOptions(variant=variant))
    files, findings = reading.files, list(reading.findings)
    aliases, said = check_state(reading)
    findings += said
    wanted = _wanted(reading, names, path, aliases)
    tasks = list(_tasks(files, wanted))
    n_unprotected = sum(
        len(file.entries) if wanted is None else len(wanted & file.entries.keys())
        for file in files.values()
        if file.seal is None
    )
    if sample is not None:
        tasks = _drawn(tasks, sample, seed)
    sums = _sums(reading) if names is None and sample is None else {}
    total = sum(len(task.span) for task in tasks) + sum(record.nbytes for record in sums.values())
    meter = ProgressMeter(progress, total)
    findings += _check_data(tasks, meter)
    findings += _check_sums(files, sums, meter)
    return Verification(
        path=str(path),
        findings=tuple(findings),
        n_shards=len(reading.examination.index.files) if reading.examination else 1,
        n_tensors=sum(len(file.entries) for file in files.values()),
        n_checked=len(tasks),
        n_unprotected=n_unprotected,
        nbytes_checked=sum(len(task.span) for task in tasks),
        n_sha256=len(sums),
    )


def _wanted(
    reading: Reading, names: Iterable[str] | None, path: str, aliases: Mapping[str, Alias]
) -> set[str] | None:
    """Return the names in the files, which for a split tensor are those of its pieces; None for all."""
    if names is None:
        return None
    splits = reading.examination.index.splits if reading.examination else {}
    promised = reading.examination.index.weight_map if reading.examination else {}
    there = set(splits).union(promised, aliases, *(file.entries for file in reading.files.values()))
    wanted: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        chosen = {name} if name in there else set(chosen_names(there, [name]))
        if not chosen:
            raise TensorNotFoundError(f"the checkpoint has no tensor {name}", path=path, tensor=name)
        wanted |= chosen
    owners = {aliases[name].of if name in aliases else name for name in wanted}
    return {piece for name in owners for piece in splits.get(name, (name,))}


def _tasks(files: Mapping[str, TensorFile], wanted: set[str] | None) -> Iterator[_Task]:
    for shard, file in files.items():
        digests = [] if file.seal is None else file.seal.tensor_digests()
        for name, digest in zip(file.entries, digests, strict=False):
            if wanted is None or name in wanted:
                yield _Task(shard, name, file, file.span_of(name), digest)


def _drawn(tasks: list[_Task], share: float, seed: int | None) -> list[_Task]:
    """Draw tensors by chance until they have their share of the bytes, and put them back in order."""
    import random  # 4 ms, which opening need not pay

    wanted = share * sum(len(task.span) for task in tasks)
    places = list(range(len(tasks)))
    random.Random(seed).shuffle(places)  # noqa: S311 - a sample, no secret
    drawn: list[int] = []
    nbytes = 0
    for place in places:
        if nbytes >= wanted:
            break
        drawn.append(place)
        nbytes += len(tasks[place].span)
    return [tasks[place] for place in sorted(drawn)]


def _check_data(tasks: list[_Task], meter: ProgressMeter) -> list[Finding]:
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    batches = batches_of(tasks, lambda task: len(task.span))
    share = sum(len(task.span) for task in tasks) // n_threads

    def check(batch: list[_Task]) -> list[Finding]:
        return [finding for task in batch if (finding := _check(task, meter, parallel=len(task.span) > share))]

    found = parallel_map(check, batches, n_threads=min(n_threads, len(batches)), meter=meter)
    return sorted(
        (finding for findings in found for finding in findings), key=lambda it: (it.shard, it.span or (0, 0))
    )


def _check(task: _Task, meter: ProgressMeter, *, parallel: bool) -> Finding | None:
    """Hold the bytes of one tensor against their digest."""
    hasher = new_hasher(parallel=parallel)
    span = (task.span.start, task.span.stop)
    try:
        for piece in task.file.source.pieces(task.span):
            hasher.update(piece)
            meter.add(len(piece))
    except TensorkeepError as error:
        return Finding("unreadable", f"tensor `{task.name}` cannot be read: {error}", task.shard, task.name, span)
    if hasher.digest() == task.digest:
        return None
    return Finding(
        "data",
        f"the bytes of tensor `{task.name}` are not those that were saved",
        task.shard,
        task.name,
        span,
        expected=f"digest {task.digest.hex()[:16]}…",
        found=f"{hasher.hexdigest()[:16]}…",
    )


def _sums(reading: Reading) -> dict[str, ShardRecord]:
    """Return shard to its record, for shards whose SHA-256 is known and that can be read."""
    records = (reading.examination.index.shards or {}) if reading.examination else {}
    return {name: record for name, record in records.items() if record.sha256 and name in reading.files}


def _check_sums(
    files: Mapping[str, TensorFile], records: Mapping[str, ShardRecord], meter: ProgressMeter
) -> list[Finding]:
    def check(shard: str) -> list[Finding]:
        expected = records[shard].sha256 or ""
        try:
            found = sha256_of(files[shard].source, meter.add)
        except TensorkeepError as error:
            return [Finding("unreadable", str(error), shard)]
        if found == expected:
            return []
        return [
            Finding("sha256", "its SHA-256 is another", shard, expected=f"{expected[:16]}…", found=f"{found[:16]}…")
        ]

    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(records))
    found = parallel_map(check, records, n_threads=n_threads, meter=meter)
    return [finding for findings in found for finding in findings]
