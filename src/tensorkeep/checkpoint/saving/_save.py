"""Tensors to a directory: planned, written side by side with their digests, and committed in one step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.saving._local_commit import commit_to
from tensorkeep.checkpoint.saving._remote_save import upload
from tensorkeep.checkpoint.saving._reuse import OlderFiles
from tensorkeep.checkpoint.saving._shard_contents import index_of, tensors_of
from tensorkeep.checkpoint.verifying import sha256_of
from tensorkeep.digests import digest_of
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import SourceMissingError, UnsupportedError, as_transport_error
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile, read_index
from tensorkeep.layout import (
    Index,
    Shard,
    ShardPlan,
    ShardRecord,
    TensorSize,
    emit_index,
    index_name,
    index_names,
    parse_size,
    plan_from_layout,
    plan_shards,
    renamed_shard,
    weights_name,
)
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import Prepared, Sealing, Ties, check_target, prepare, write_file
from tensorkeep.transport import (
    RemotePath,
    Transaction,
    is_directory,
    is_remote,
    open_source,
    sync_directory,
    transaction,
    without_secrets,
)

_MAX_WRITERS: Final = 4
"""Threads that write shards side by side; one disk is not faster with more."""


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
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    index_metadata: Mapping[str, Any] | None = None,
    reuse: Checkpoint | TensorFile | None = None,
    before_commit: Callable[[Mapping[str, str]], None] | None = None,
) -> None:
    """Save tensors, or a whole training state, to a directory in the Hugging Face layout, complete or not at all.

    They become `model.safetensors`, or several shards with an index if they do not fit. The checkpoint that stands
    there stays whole until the new one is; then one step switches. Killed at any instant, the directory holds the
    old or the new checkpoint. Every header carries the digests of its tensors, and the index those of the headers.
    Of what lies in the directory only the old checkpoint's own files are removed. Do not write to tensors while they
    are saved: a file would hold something between, and `verify` would call that damage.

    Args:
        state: A dict of name to tensor, or any nested data; see `tensorkeep.save`. Tensors are NumPy arrays, torch
            tensors on any device, `LazyTensor` values of any checkpoint (also of this one), in any mixture and memory
            layout. Tensors of files are copied by the kernel.
        directory: Made if its parent is there.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"` or `"500 MiB"`. A larger
            tensor gets a shard of its own.
        balance: Whether shards are made as equal as the order of the tensors allows.
        split_large: Whether larger tensors are split over shards by rows. Only tensorkeep puts them together again.
        layout: An index or its path: each tensor goes to the file that it names, cut as it says.
        base_name: What file names begin with.
        variant: Such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each shard. None keeps that of an open checkpoint.
        ties: What to do with tensors that share memory: `"share"`: store it once, `"copy"`: save each on its own, or
            `"error"`.
        sha256: Whether the index gets the SHA-256 of each shard, the name that Git LFS and the Hub give it. It takes
            about three times as long as all other digests. A single file gets an index too.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        progress: Called with the bytes written so far and the bytes in all, every few MiB, by one thread at a time.
            What it raises ends the save, and the directory is as it was before.
        index_metadata: What the index is to say beside the sizes, by key: anything that JSON can hold. A single file
            gets an index too.
        reuse: An open checkpoint on the same file system. Shards that are byte for byte files of it are not written:
            they become another name of the same file (a hard link), which each of the two checkpoints may lose
            without harm to the other. Where the file system has no such names they are copied by the kernel.
        before_commit: Called when all files are written and nothing is replaced yet, with the name of each file of
            tensors and the path where it is until then. What it raises ends the save.

    Raises:
        StateError: If a value is no data: a function, a model, an object of some class. The message has its path.
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If the directory is no path, or metadata is not text.
        UnsupportedError: If a size, name or layout is invalid, or a tensor has no data.
        HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself.
        IndexFileError: If the metadata of the index has no JSON form.
        LimitError: If there are more names than a header can hold, or data is nested too deep.
        BusyError: If another process is saving there.
        TransportError: If the directory's parent is missing, the directory is not writable, the disk is full, or the
            system fails otherwise. The directory then holds what it held before.
    """
    max_shard_nbytes = parse_size(max_shard_size)
    refuse_file_name(check_target(directory))
    write_checkpoint(
        prepare(state, ties=ties),
        directory,
        max_shard_nbytes=max_shard_nbytes,
        balance=balance,
        split_large=split_large,
        layout=layout,
        base_name=base_name,
        variant=variant,
        metadata=metadata,
        sha256=sha256,
        durable=durable,
        progress=progress,
        index_metadata=index_metadata,
        reuse=reuse,
        before_commit=before_commit,
    )


def write_checkpoint(
    prepared: Prepared,
    directory: str | os.PathLike[str],
    *,
    max_shard_nbytes: int,
    balance: bool = False,
    split_large: bool = False,
    layout: str | os.PathLike[str] | Index | None = None,
    base_name: str = "model",
    variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    index_metadata: Mapping[str, Any] | None = None,
    reuse: Checkpoint | TensorFile | None = None,
    before_commit: Callable[[Mapping[str, str]], None] | None = None,
) -> None:
    """Write what was prepared to a directory; see `save_checkpoint`."""
    plan = _plan(prepared.to_write, max_shard_nbytes, balance, split_large, layout, base_name, variant)
    stem = f"{base_name}.{variant}" if variant else base_name
    needs_index = sha256 or index_metadata is not None
    index_file = plan.index_file or (index_name(base_name, variant) if needs_index else None)
    metadata = prepared.with_ties(prepared.metadata if metadata is None else metadata)
    total = sum(host.nbytes for host in prepared.to_write.values())
    if is_remote(os.fspath(directory)):
        _refuse_before_commit(before_commit, os.fspath(directory))
        upload(
            plan,
            prepared,
            RemotePath.of(os.fspath(directory)),
            stem=stem,
            metadata=metadata,
            index_file=index_file,
            index_metadata=index_metadata or {},
            sha256=sha256,
            meter=ProgressMeter(progress, total),
        )
        return
    with (
        made_directory(os.fspath(directory), durable=durable) as folder,
        transaction(folder, stem, durable=durable) as staging,
    ):
        older = OlderFiles(reuse.shards.values() if reuse is not None else ())
        save = _Save(staging, prepared, metadata, index_file, older, ProgressMeter(progress, total))
        records = save.write_shards(plan.shards, sha256=sha256)
        if index_file is not None:
            _write_index(staging, index_file, index_of(plan, prepared, records, index_metadata or {}))
        if before_commit is not None:
            before_commit({shard.file: staging.path_of(shard.file) for shard in plan.shards})
        entries = (weights_name(stem), *index_names(stem))
        commit_to([shard.file for shard in plan.shards], index_file, staging, folder, entries)


def _plan(
    to_write: Mapping[str, TensorToWrite],
    max_shard_nbytes: int,
    balance: bool,
    split_large: bool,
    layout: str | os.PathLike[str] | Index | None,
    base_name: str,
    variant: str | None,
) -> ShardPlan:
    sizes = {name: TensorSize(host.nbytes, _rows_shape(host)) for name, host in to_write.items()}
    if layout is None:
        return plan_shards(
            sizes,
            max_shard_nbytes=max_shard_nbytes,
            balance=balance,
            split_large=split_large,
            base=base_name,
            variant=variant,
        )
    stem = f"{base_name}.{variant}" if variant else base_name
    known = layout if isinstance(layout, Index) else read_index(os.fspath(layout))
    weight_map = {name: renamed_shard(file, stem) for name, file in known.weight_map.items()}
    return plan_from_layout(sizes, weight_map, index_file=index_name(base_name, variant), splits=known.splits)


def refuse_file_name(directory: str) -> None:
    """Refuse the name of a file where a directory is wanted."""
    if directory.endswith(".safetensors") and not os.path.isdir(directory):
        raise UnsupportedError(
            "a checkpoint is saved to a directory",
            path=directory,
            expected="the name of a directory",
            found="that of a file",
            hint="tensorkeep.save writes a single file",
        )
    if is_remote(directory) and not is_directory(directory):
        raise UnsupportedError(
            "of a URL, a name with a suffix is that of a file",
            path=without_secrets(directory),
            expected="the URL of a directory",
            hint="Let it end in a slash",
        )


def _rows_shape(host: TensorToWrite) -> tuple[int, ...]:
    """Return the shape that rows are cut from; none where rows say nothing of bytes."""
    is_known = host.dtype.name in BY_NAME
    return host.shape if is_known and not (host.dtype.is_packed and len(host.shape) < 2) else ()


def _refuse_before_commit(given: object, directory: str) -> None:
    if given is not None:
        raise UnsupportedError(
            "nothing can be looked at before a remote save is done", path=directory, found="before_commit"
        )


@contextmanager
def made_directory(directory: str, *, durable: bool) -> Iterator[str]:
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
        prepared: Prepared,
        metadata: Mapping[str, str] | None,
        index_file: str | None,
        older: OlderFiles,
        meter: ProgressMeter,
    ) -> None:
        self._staging = staging
        self._prepared = prepared
        self._metadata = metadata
        self._index_file = index_file
        self._older = older
        self._meter = meter

    def write_shards(self, shards: tuple[Shard, ...], *, sha256: bool) -> dict[str, ShardRecord]:
        """Write all shards, some side by side, and return what the index says of each."""
        n_threads = min(len(shards), _MAX_WRITERS, os.cpu_count() or 1)
        if self._older:  # what changes is mostly small: the disk takes it while the rest is compared
            shards = tuple(sorted(shards, key=self._nbytes_about))

        def write(shard: Shard) -> ShardRecord:
            return self._write_shard(shard, sha256=sha256)

        records = parallel_map(write, shards, n_threads=n_threads, meter=self._meter)
        return {shard.file: record for shard, record in zip(shards, records, strict=True)}

    def _nbytes_about(self, shard: Shard) -> int:
        names = (*shard.tensors, *(piece.tensor for piece in shard.pieces))
        return sum(self._prepared.to_write[name].nbytes for name in names)

    def _write_shard(self, shard: Shard, *, sha256: bool) -> ShardRecord:
        to_write = tensors_of(shard, self._prepared)
        head = self._linked(shard.file, to_write) or self._written(shard.file, to_write)
        return ShardRecord(
            nbytes=len(head) + sum(host.nbytes for host in to_write.values()),
            header=digest_of(head).hex(),
            sha256=sha256_of(open_source(self._staging.path_of(shard.file))) if sha256 else None,
        )

    def _linked(self, file: str, to_write: Mapping[str, TensorToWrite]) -> bytes | None:
        """Give a file of the older checkpoint the name of a new one that would be the same, and return its header."""
        same = self._older.find(to_write, self._metadata, index=self._index_file) if self._index_file else None
        if same is None:
            return None
        is_done = self._staging.link(file, same.source, same.head, on_written=self._meter.counting())
        return same.head if is_done else None

    def _written(self, file: str, to_write: Mapping[str, TensorToWrite]) -> bytes:
        """Write a new file, and return its header."""
        state = None if self._index_file else self._prepared.state
        with self._staging.file(file, on_written=self._meter.counting()) as sink:
            return write_file(sink, to_write, self._metadata, state=state, sealing=Sealing(index=self._index_file))


def _write_index(staging: Transaction, name: str, index: Index) -> None:
    with staging.file(name) as sink:
        sink.write([emit_index(index)])
