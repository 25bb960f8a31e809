"""Finished checkpoints written anew: other shards, fewer tensors, other names and dtypes, several made one.

A view and a save. Tensors that stay as they are are copied by the kernel, with their digests. What becomes of the
others is given digests of its own, so they are held against their old ones first: damage is never made to look whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from tensorkeep.checkpoint.rewriting._pipeline import (
    Progress,
    changed,
    check_kept_digests,
    digested,
    identity_of,
    refuse_replaced,
    shifted,
    taken,
    together,
)
from tensorkeep.checkpoint.saving import save_checkpoint
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.dcp import find_distributed
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile, open_safetensors, read_index
from tensorkeep.layout import Index, parse_size
from tensorkeep.tensors import LazyTensors, Renaming, Selector
from tensorkeep.transport import is_directory

_Path = str | os.PathLike[str]


def reshard(
    source: _Path,
    directory: _Path,
    *,
    max_shard_size: int | str = "5GB",
    balance: bool = False,
    split_large: bool = False,
    layout: _Path | Index | None = None,
    base_name: str = "model",
    variant: str | None = None,
    output_variant: str | None = None,
    select: Selector | Iterable[Selector] | None = None,
    drop: Selector | Iterable[Selector] | None = None,
    rename: Renaming | None = None,
    strip_prefix: str | None = None,
    cast: Any = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write a checkpoint anew, complete or not at all, in constant memory.

    Bytes go from file to file by the kernel, and digests with them; what has none gets one on the way. Tensors that
    are cast, cut or put together are first held against the digests that they had.

    Args:
        source: A directory, an index or a single file, of any library.
        directory: Where to; made if its parent is there. It may be that of the source, which stays whole until the
            new checkpoint is, and is replaced if the names begin alike.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`.
        balance: Whether shards are made as equal as the order of the tensors allows.
        split_large: Whether larger tensors are split over shards by rows. Only tensorkeep puts them together again.
        layout: An index or its path: each tensor goes to the file that it names, cut as it says.
        base_name: What file names begin with.
        variant: Which checkpoint of a source directory, such as `"fp16"`.
        output_variant: What the new one is called, such as `"fp16"`, which gives `model.fp16.safetensors`.
        select: Tensors to take: shell patterns for whole names, or functions of a name; all if None.
        drop: Tensors to leave out of these.
        rename: Old name to new, for those that change; or a function that gives the new name of each.
        strip_prefix: Taken from the names after that, where they have it.
        cast: What floating-point tensors are converted to, such as `"bf16"`; see `LazyTensor.cast`.
        metadata: Free text by key, for each shard; None keeps that of the source.
        sha256: Whether the index gets the SHA-256 of each shard.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes checked and written so far and those in all, by one thread at a time. What it
            raises ends the work, and the directory is as it was before.

    Raises:
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If it is not whole, or bytes that would be changed are not those that were saved.
        FormatError: If the index or a header is none, or a new name or text is impossible.
        TensorNotFoundError: If no tensor is selected, dropped or left, or there is none of a name to rename or with
            the prefix.
        RefusedError: If two tensors would have one name.
        DtypeError: If there is no such dtype to cast to.
        TypeError: If a name or metadata is not text.
        UnsupportedError: If a size, name or layout is invalid, or a directory has several checkpoints.
        LimitError: If there are more names than a header can hold.
        BusyError: If another process is saving there.
        TransportError: If the source cannot be read, the directory's parent is missing, the directory is not
            writable, or the disk is full.
    """
    merge(
        [source],
        directory,
        max_shard_size=max_shard_size,
        balance=balance,
        split_large=split_large,
        layout=layout,
        base_name=base_name,
        variant=variant,
        output_variant=output_variant,
        select=select,
        drop=drop,
        rename=rename,
        strip_prefix=strip_prefix,
        cast=cast,
        metadata=metadata,
        sha256=sha256,
        durable=durable,
        progress=progress,
    )


def merge(
    sources: Iterable[_Path],
    directory: _Path,
    *,
    max_shard_size: int | str = "5GB",
    balance: bool = False,
    split_large: bool = False,
    layout: _Path | Index | None = None,
    base_name: str = "model",
    variant: str | None = None,
    output_variant: str | None = None,
    select: Selector | Iterable[Selector] | None = None,
    drop: Selector | Iterable[Selector] | None = None,
    rename: Renaming | None = None,
    strip_prefix: str | None = None,
    cast: Any = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write several checkpoints as one, complete or not at all, in constant memory.

    Args:
        sources: Directories, indexes or single files. Their tensors follow each other; no name may stand in two.
        directory: Where to; see `reshard`, for all that follows too.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`.
        balance: Whether shards are made as equal as the order of the tensors allows.
        split_large: Whether larger tensors are split over shards by rows.
        layout: An index or its path: each tensor goes to the file that it names, cut as it says.
        base_name: What file names begin with.
        variant: Which checkpoint of source directories, such as `"fp16"`.
        output_variant: What the new one is called, such as `"fp16"`.
        select: Tensors to take of all together.
        drop: Tensors to leave out of these.
        rename: Old name to new, for those that change; or a function that gives the new name of each.
        strip_prefix: Taken from the names after that, where they have it.
        cast: What floating-point tensors are converted to, such as `"bf16"`.
        metadata: Free text by key, for each shard; None keeps that of all sources, the first one's where they differ.
        sha256: Whether the index gets the SHA-256 of each shard.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes checked and written so far and those in all, by one thread at a time.

    Raises:
        RefusedError: If a tensor is in two of the sources, or two would have one name.
        UnsupportedError: If there are no sources; and as `reshard` says.
        TensorkeepError: As `reshard` says.
    """
    paths = [os.fspath(path) for path in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    if isinstance(layout, str | os.PathLike):
        layout = read_index(os.fspath(layout))
    limit = parse_size(max_shard_size)
    if not paths:
        raise UnsupportedError("there is nothing to merge", expected="at least one checkpoint")
    with ExitStack() as files:
        opened = [(path, _opened(path, variant, files)) for path in paths]
        identities = {source.path: identity_of(source.path) for _, source in opened}
        wanted, _ = taken(together([source for _, source in opened]), select, drop)
        new = changed(wanted, rename, strip_prefix, cast)
        cut = _cut_names(new, limit, split_large=split_large, layout=layout)
        pairs = zip(wanted, new.values(), strict=True)
        remade = {old for old, lazy in pairs if lazy.digest is None or lazy.name in cut}
        n_checked = sum(lazy.nbytes for _, source in opened for lazy in digested(source, remade).values())
        report = progress or (lambda _, __: None)
        check_kept_digests(opened, variant, remade, shifted(report, 0, n_checked + new.nbytes))
        save_checkpoint(
            new,
            directory,
            max_shard_size=limit,
            balance=balance,
            split_large=split_large,
            layout=layout,
            base_name=base_name,
            variant=output_variant,
            metadata=metadata,
            sha256=sha256,
            durable=durable,
            index_metadata=_kept_of_index([source for _, source in opened]),
            progress=shifted(report, n_checked, n_checked + new.nbytes),
            before_commit=lambda _: refuse_replaced(identities),
        )


def _kept_of_index(sources: list[Checkpoint | TensorFile]) -> dict[str, Any] | None:
    """Return what the index of a single source says beside the sizes; None where that is nothing."""
    said = sources[0].index.metadata if len(sources) == 1 and isinstance(sources[0], Checkpoint) else {}
    return {key: value for key, value in said.items() if not key.startswith("total_")} or None


def _opened(path: str, variant: str | None, files: ExitStack) -> Checkpoint | TensorFile:
    if find_distributed(path) is not None:
        raise UnsupportedError(
            "this is what many ranks wrote with torch.distributed.checkpoint, not a finished checkpoint",
            path=path,
            hint="`tensorkeep convert` (tensorkeep.convert) makes one of it",
        )
    source = open_safetensors(path, OpenOptions(variant=variant if is_directory(path) else None))
    files.callback(source.close)
    return source


def _cut_names(tensors: LazyTensors, limit: int, *, split_large: bool, layout: Index | None) -> set[str]:
    """Return the tensors that will be split over shards."""
    if layout is not None:
        return set(layout.splits)
    return {name for name, lazy in tensors.items() if lazy.nbytes > limit} if split_large else set()
