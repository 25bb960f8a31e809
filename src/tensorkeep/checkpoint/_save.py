"""Tensors to a directory: planned, written side by side with their digests, and committed in one step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from typing import Any, Final

from tensorkeep.arrays import HostTensor
from tensorkeep.checkpoint._examine import read_index
from tensorkeep.checkpoint._index import Index, ShardRecord, emit_index
from tensorkeep.checkpoint._names import index_name, index_names, renamed_shard, stem_of_index, weights_name
from tensorkeep.checkpoint._pieces import TensorSize
from tensorkeep.checkpoint._plan import Shard, ShardPlan, plan_from_layout, plan_shards
from tensorkeep.checkpoint._rows import rows_of
from tensorkeep.checkpoint._sha256 import sha256_of
from tensorkeep.checkpoint._size import parse_size
from tensorkeep.checkpoint.workers import Meter, side_by_side
from tensorkeep.digests import digest_of
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.tensors import LazyTensors, Sealing, Ties, describe, write_file
from tensorkeep.transport import Transaction, open_source, sync_directory, transaction

__all__ = ["save_checkpoint"]

_MAX_WRITERS: Final = 4
"""Threads that write shards side by side; one disk is not faster with more."""


def save_checkpoint(
    tensors: Mapping[str, Any],
    directory: str | os.PathLike[str],
    *,
    max_shard_size: int | str = "5GB",
    balance: bool = False,
    split_large: bool = False,
    layout: str | os.PathLike[str] | Index | None = None,
    base_name: str = "model",
    variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    ties: Ties = "error",
    sha256: bool = False,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    before_commit: Callable[[Mapping[str, str]], None] | None = None,
) -> None:
    """Save tensors to a directory in the Hugging Face layout, complete or not at all.

    They become `model.safetensors`, or several shards with an index if they do not fit. The checkpoint that stands
    there stays whole until the new one is; then one step switches. Killed at any instant, the directory holds the
    old or the new checkpoint. Every header carries the digests of its tensors, and the index those of the headers.
    Of what lies in the directory only the old checkpoint's own files are removed. Do not write to tensors while they
    are saved: a file would hold something between, and `verify` would call that damage.

    Args:
        tensors: Name to tensor: NumPy arrays, torch tensors on any device, `LazyTensor` values of any checkpoint
            (also of this one), in any mixture and memory layout. Tensors of files are copied by the kernel.
        directory: Made if its parent is there.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"` or `"500 MiB"`. A larger
            tensor gets a shard of its own.
        balance: Whether shards are made as equal as the order of the tensors allows.
        split_large: Whether larger tensors are split over shards by rows. Only tensorkeep puts them together again.
        layout: An index or its path: each tensor goes to the file that it names, cut as it says.
        base_name: What file names begin with.
        variant: Such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each shard. None keeps that of an open checkpoint.
        ties: What to do with tensors that share memory: `"error"`, or `"copy"`: save each on its own.
        sha256: Whether the index gets the SHA-256 of each shard, the name that Git LFS and the Hub give it. It takes
            about three times as long as all other digests. A single file gets an index too.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        progress: Called with the bytes written so far and the bytes in all, every few MiB, by one thread at a time.
            What it raises ends the save, and the directory is as it was before.
        before_commit: Called when all files are written and nothing is replaced yet, with the name of each file of
            tensors and the path where it is until then. What it raises ends the save.

    Raises:
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `tensors` is no mapping, or a name or metadata is not text.
        UnsupportedError: If a size, name or layout is invalid, or a value is no tensor, or is sparse or without data.
        HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself.
        LimitError: If there are more names than a header can hold.
        BusyError: If another process is saving there.
        TransportError: If the directory's parent is missing, the directory is not writable, the disk is full, or the
            system fails otherwise. The directory then holds what it held before.
    """
    max_shard_nbytes = parse_size(max_shard_size)
    _refuse_file_name(os.fspath(directory))
    hosts = describe(tensors, ties=ties)
    sizes = {name: TensorSize(host.nbytes, _rows_shape(host)) for name, host in hosts.items()}
    stem = f"{base_name}.{variant}" if variant else base_name
    if layout is None:
        plan = plan_shards(
            sizes,
            max_shard_nbytes=max_shard_nbytes,
            balance=balance,
            split_large=split_large,
            base=base_name,
            variant=variant,
        )
    else:
        known = layout if isinstance(layout, Index) else read_index(os.fspath(layout))
        weight_map = {name: renamed_shard(file, stem) for name, file in known.weight_map.items()}
        plan = plan_from_layout(sizes, weight_map, index_file=index_name(base_name, variant), splits=known.splits)
    if metadata is None and isinstance(tensors, LazyTensors) and tensors.has_metadata:
        metadata = tensors.metadata
    index_file = plan.index_file or (index_name(base_name, variant) if sha256 else None)
    total = sum(host.nbytes for host in hosts.values())
    with (
        _made(os.fspath(directory), durable=durable) as folder,
        transaction(folder, stem, durable=durable) as staging,
    ):
        save = _Save(staging, tensors, hosts, metadata, index_file, Meter(progress, total))
        records = save.write_shards(plan.shards, sha256=sha256)
        if index_file is not None:
            _write_index(staging, index_file, _index(plan, hosts, records))
        if before_commit is not None:
            before_commit({shard.file: staging.path_of(shard.file) for shard in plan.shards})
        _commit(staging, folder, stem, index_file, [shard.file for shard in plan.shards])


def _refuse_file_name(directory: str) -> None:
    if directory.endswith(".safetensors") and not os.path.isdir(directory):
        raise UnsupportedError(
            "a checkpoint is saved to a directory",
            path=directory,
            expected="the name of a directory",
            found="that of a file",
            hint="tensorkeep.save writes a single file",
        )


def _rows_shape(host: HostTensor) -> tuple[int, ...]:
    """Return the shape that rows are cut from; none where rows say nothing of bytes."""
    is_known = host.dtype.name in BY_NAME
    return host.shape if is_known and not (host.dtype.is_packed and len(host.shape) < 2) else ()


@contextmanager
def _made(directory: str, *, durable: bool) -> Iterator[str]:
    """Make the directory if it is missing, and remove it again if nothing comes of it."""
    made = False
    try:
        os.mkdir(directory)
        made = True
        if durable:
            sync_directory(os.path.dirname(os.path.abspath(directory)))
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        raise SourceMissingError(
            "could not make the directory",
            path=directory,
            found=error.strerror,
            hint="Create its parent first",
        ) from None
    except OSError:
        with as_transport_error("could not make the directory", directory):
            raise
    try:
        yield directory
    except BaseException:
        if made:
            with suppress(OSError):
                os.rmdir(directory)
        raise


class _Save:
    """The shards of one save on their way."""

    def __init__(
        self,
        staging: Transaction,
        tensors: Mapping[str, Any],
        hosts: Mapping[str, HostTensor],
        metadata: Mapping[str, str] | None,
        index_file: str | None,
        meter: Meter,
    ) -> None:
        self._staging = staging
        self._tensors = tensors
        self._hosts = hosts
        self._metadata = metadata
        self._index_file = index_file
        self._meter = meter

    def write_shards(self, shards: tuple[Shard, ...], *, sha256: bool) -> dict[str, ShardRecord]:
        """Write all shards, some side by side, and return what the index says of each."""
        n_threads = min(len(shards), _MAX_WRITERS, os.cpu_count() or 1)

        def write(shard: Shard) -> ShardRecord:
            return self._write_shard(shard, sha256=sha256)

        records = side_by_side(write, shards, n_threads=n_threads, meter=self._meter)
        return {shard.file: record for shard, record in zip(shards, records, strict=True)}

    def _write_shard(self, shard: Shard, *, sha256: bool) -> ShardRecord:
        hosts = {name: self._hosts[name] for name in shard.tensors}
        for piece in shard.pieces:
            hosts[piece.name] = rows_of(
                self._tensors[piece.tensor], self._hosts[piece.tensor], piece.start, piece.stop
            )
        with self._staging.file(shard.file, on_written=self._meter.counting()) as sink:
            head = write_file(sink, hosts, self._metadata, sealing=Sealing(index=self._index_file))
        return ShardRecord(
            nbytes=len(head) + sum(host.nbytes for host in hosts.values()),
            header=digest_of(head).hex(),
            sha256=sha256_of(open_source(self._staging.path_of(shard.file))) if sha256 else None,
        )


def _index(plan: ShardPlan, hosts: Mapping[str, HostTensor], records: Mapping[str, ShardRecord]) -> Index:
    totals = {
        "total_parameters": sum(prod(host.shape) for host in hosts.values()),
        "total_size": sum(host.nbytes for host in hosts.values()),
    }
    return Index(plan.weight_map, totals, dict(records), plan.splits)


def _write_index(staging: Transaction, name: str, index: Index) -> None:
    with staging.file(name) as sink:
        sink.write([emit_index(index)])


def _commit(staging: Transaction, directory: str, stem: str, index_file: str | None, shards: list[str]) -> None:
    """Switch from the old set to the new one, and remove what only the old one had."""
    entries = {name for name in (weights_name(stem), *index_names(stem)) if _exists(directory, name)}
    overwrites = index_file is not None and any(_exists(directory, name) for name in shards)
    staging.commit(
        first=sorted(entries - set(shards)) if overwrites else (),
        last=index_file or shards[0],
        remove=sorted(entries | _listed(directory, entries)),
    )


def _exists(directory: str, name: str) -> bool:
    try:
        with as_transport_error("could not read the directory", directory):
            os.lstat(os.path.join(directory, name))
    except SourceMissingError:
        return False
    return True


def _listed(directory: str, entries: set[str]) -> set[str]:
    """Return the shards that the old indexes list, without those of any other index in the directory."""
    with as_transport_error("could not read the directory", directory):
        indexes = {name for name in os.listdir(directory) if stem_of_index(name)}
    old = set().union(*(_shards_of(directory, name) for name in indexes & entries))
    return old - set().union(*(_shards_of(directory, name) for name in indexes - entries))


def _shards_of(directory: str, index: str) -> set[str]:
    try:
        files = read_index(os.path.join(directory, index), check=False).weight_map.values()
    except (FormatError, RefusedError, IntegrityError, SourceMissingError):  # what is no index owns nothing
        return set()
    return {name for name in files if name.endswith(".safetensors") and os.path.basename(name) == name}
