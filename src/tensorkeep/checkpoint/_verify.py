"""Whether every byte of a checkpoint is the one that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint._examine import Access
from tensorkeep.checkpoint._findings import Finding
from tensorkeep.checkpoint._index import ShardRecord
from tensorkeep.checkpoint._pickle_set import PickleSet, open_pickled
from tensorkeep.checkpoint._settle import Reading, read_settled
from tensorkeep.checkpoint._sha256 import sha256_of
from tensorkeep.checkpoint._state_check import check_state
from tensorkeep.checkpoint.archive_sums import Summed, sum_of, summed_storages
from tensorkeep.checkpoint.workers import Meter, batches_of, side_by_side
from tensorkeep.digests import new_hasher
from tensorkeep.errors import SelectionError, TensorkeepError, TensorNotFoundError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.pickled import PickleFile
from tensorkeep.tensors import TensorFile, chosen_names
from tensorkeep.transport import ByteRange

__all__ = ["Verification", "verify"]

_MAX_THREADS: Final = 8
"""Threads that make digests; each keeps a core busy, and more only make a disk seek."""


class Verification(msgspec.Struct, frozen=True):
    """What was checked, and what was found.

    Attributes:
        path: The checkpoint.
        findings: All that is wrong, shard by shard in the order of the bytes.
        n_shards: Files of the checkpoint.
        n_tensors: Tensors in them.
        n_checked: Tensors whose bytes were held against their digest.
        n_unprotected: Tensors that carry no digest.
        nbytes_checked: Bytes of the tensors that were checked.
        n_sha256: Shards that were held against their SHA-256.
    """

    path: str
    findings: tuple[Finding, ...]
    n_shards: int
    n_tensors: int
    n_checked: int
    n_unprotected: int
    nbytes_checked: int
    n_sha256: int

    @property
    def is_damaged(self) -> bool:
        """Whether anything is not as it was saved."""
        return any(finding.is_damage for finding in self.findings)

    @property
    def is_whole(self) -> bool:
        """Whether all that was asked for was checked, and nothing is wrong; never true where a digest is missing."""
        return not self.is_damaged and not self.n_unprotected


class _Task(msgspec.Struct, frozen=True):
    """One tensor whose bytes are to be checked."""

    shard: str
    name: str
    file: TensorFile
    span: ByteRange
    digest: bytes


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

    Index and headers are always checked whole. Damage is not an error here: it is listed.

    The archives of `torch.save` have a CRC-32 of each storage, which torch never looks at; they are held against it,
    all those of the tensors that are wanted.

    Args:
        path: A directory, an index or a file.
        names: Tensors whose bytes are checked, or shell patterns for their names; all if None.
        sample: Share of the bytes to check, above 0 and up to 1: tensors drawn by chance until there are as many.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        seed: Makes the sample the same each time.
        progress: Called with the bytes checked so far and the bytes in all, by one thread at a time. What it raises
            ends the work.

    Returns:
        What was checked and found.

    Raises:
        SourceMissingError: If there is no checkpoint.
        IndexFileError: If the index is none.
        HeaderError: If a single file is neither a safetensors file nor one of pickles.
        PickleError: If a pickle is none, or contradicts itself or its file.
        ArchiveError: If a pickle's archive is malformed or damaged.
        LimitError: If a pickle is over a bound.
        IntegrityError: If the index, or the header of a single file, is not the one that was written, or a single
            file of another save lies beside an index.
        TensorNotFoundError: If a name is not in the checkpoint.
        SelectionError: If the sample is no such share.
        UnsupportedError: If a directory has several checkpoints, or digests are of a later version.
        TransportError: If the index, or a single file, cannot be read.
    """
    if sample is not None and not (isinstance(sample, int | float) and 0 < sample <= 1):
        raise SelectionError("no share of the bytes", expected="more than 0, at most 1", found=repr(sample))
    given = os.fspath(path)
    pickled = open_pickled(given, variant=variant, dangerous="record")
    if pickled is not None:
        with pickled:
            return _verify_pickled(pickled, given, names, progress)
    reading = read_settled(given, variant, Access())
    files, findings = reading.files, list(reading.findings)
    aliases, said = check_state(reading)
    findings += said
    wanted = _wanted(reading, names, given, aliases)
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
    meter = Meter(progress, total)
    findings += _check_data(tasks, meter)
    findings += _check_sums(files, sums, meter)
    return Verification(
        path=given,
        findings=tuple(findings),
        n_shards=len(reading.examination.index.files) if reading.examination else 1,
        n_tensors=sum(len(file.entries) for file in files.values()),
        n_checked=len(tasks),
        n_unprotected=n_unprotected,
        nbytes_checked=sum(len(task.span) for task in tasks),
        n_sha256=len(sums),
    )


def _verify_pickled(
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
    meter = Meter(progress, sum(len(one.span) for _, one in summed))

    def check(task: tuple[str, Summed]) -> Finding | None:
        shard, one = task
        found = sum_of(one, meter)
        span = (one.span.start, one.span.stop)
        message = f"the bytes of tensor `{one.tensor}` are not those that were saved"
        facts = {"expected": f"CRC-32 {one.crc:#010x}", "found": f"{found:#010x}"}
        return None if found == one.crc else Finding("data", message, shard, one.tensor, span, **facts)

    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(summed))
    findings = [finding for finding in side_by_side(check, summed, n_threads=n_threads, meter=meter) if finding]
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


def _check_data(tasks: list[_Task], meter: Meter) -> list[Finding]:
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    batches = batches_of(tasks, lambda task: len(task.span))
    share = sum(len(task.span) for task in tasks) // n_threads

    def check(batch: list[_Task]) -> list[Finding]:
        return [finding for task in batch if (finding := _check(task, meter, parallel=len(task.span) > share))]

    found = side_by_side(check, batches, n_threads=min(n_threads, len(batches)), meter=meter)
    return sorted(
        (finding for findings in found for finding in findings), key=lambda it: (it.shard, it.span or (0, 0))
    )


def _check(task: _Task, meter: Meter, *, parallel: bool) -> Finding | None:
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


def _check_sums(files: Mapping[str, TensorFile], records: Mapping[str, ShardRecord], meter: Meter) -> list[Finding]:
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
    found = side_by_side(check, records, n_threads=n_threads, meter=meter)
    return [finding for findings in found for finding in findings]
