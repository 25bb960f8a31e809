"""Checkpoints written as one: opened, selected, transformed, checked, saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.checkpoint.rewriting._existing import loss_guard
from tensorkeep.checkpoint.rewriting._pipeline import (
    RewriteOptions,
    check_replaced,
    concatenate,
    digests_to_replace,
    identities_of,
    refuse_replaced,
    select_and_drop,
    subprogress,
    transform,
)
from tensorkeep.checkpoint.rewriting._provenance import provenance_of
from tensorkeep.checkpoint.rewriting._whole import whole_checkpoint
from tensorkeep.checkpoint.saving import SaveOptions, refuse_file_name, write_checkpoint
from tensorkeep.encryption import Keys
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Check, Opened
from tensorkeep.kinds.given import path_of
from tensorkeep.kinds.origins import Origin, SourceToOpen, origins_of
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import Index
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor, LazyTensors, check_target, prepare
from tensorkeep.transport import ByteRange

if TYPE_CHECKING:
    from tensorkeep.trust import Trust

_Path = str | os.PathLike[str]
_Opened = Sequence[tuple[str, Opened]]
"""The path of each source, with the open checkpoint."""


def rewrite_as_one(
    sources: Sequence[str | Opened],
    directory: _Path,
    variant: str | None,
    rewrite: RewriteOptions,
    options: SaveOptions,
    *,
    overwrite: bool,
    keys: Keys | None = None,
    trust: Trust | None = None,
    operation: str | None = None,
) -> None:
    """Write checkpoints as one: what `reshard` and `join` do; `operation` is what its provenance calls that."""
    if not sources:
        raise UnsupportedError("there is nothing to join", expected="at least one checkpoint")
    options = _with_layout(options)
    refuse_file_name(check_target(directory))
    target = os.fspath(directory)
    with ExitStack() as files:
        opened = [(path_of(each), whole_checkpoint(each, variant, files, keys, trust)) for each in sources]
        read = [source for _, source in opened]
        by_path = [(path, each) for path, each in zip(sources, read, strict=True) if isinstance(path, str)]
        wanted, _ = select_and_drop(concatenate(read), rewrite)
        for source in read:
            source.refuse_expanded([name for name in source if name in wanted])
        refuse_loss = loss_guard(target, options.stem, read, takes_all=rewrite.takes_all, overwrite=overwrite)
        refuse_loss()
        identities = identities_of(read)
        new = transform(wanted, rewrite)
        checks = _checks_of_changed(opened, wanted, new, options)
        n_checked = sum(len(check.span) for _, of_path in checks for check in of_path)
        report = options.progress or (lambda _, __: None)
        check_replaced(checks, ProgressMeter(report, n_checked + new.nbytes), options.executor)

        def finish(staged: Mapping[str, str]) -> None:
            refuse_replaced(identities)
            refuse_loss(staged)

        complete = msgspec.structs.replace(
            options,
            index_metadata=_kept_of_index(read),
            block_digests=any(source.index is not None and source.index.sidecars for source in read),
            progress=subprogress(report, n_checked, n_checked + new.nbytes),
            origins=_origins(new, wanted, by_path, variant, rewrite) if options.executor is not None else {},
            before_commit=finish,
            describe=None if operation is None else provenance_of(operation, read, rewrite, options, target),
        )
        write_checkpoint(prepare(new), target, complete)


def _with_layout(options: SaveOptions) -> SaveOptions:
    """Return options whose layout is an index, read from its path if one was given."""
    layout = options.layout
    if layout is None or isinstance(layout, Index):
        return options
    return msgspec.structs.replace(options, layout=read_index(os.fspath(layout)))


def _checks_of_changed(
    opened: _Opened, wanted: LazyTensors, new: LazyTensors, options: SaveOptions
) -> list[tuple[str, list[Check]]]:
    """Return, for each path, the digests of the tensors whose bytes or places the new files change."""
    split = _split_names(new, options)
    kept = {_place_of(lazy) for lazy in new.values() if lazy.digest is not None and lazy.name not in split}
    remade = {name for name, lazy in wanted.items() if _place_of(lazy) not in kept}
    return [(path, digests_to_replace(source, remade)) for path, source in opened]


def _split_names(tensors: LazyTensors, options: SaveOptions) -> set[str]:
    """Return the tensors that will be split over shards."""
    if isinstance(options.layout, Index):
        return set(options.layout.splits)
    limit = options.max_shard_nbytes
    return {name for name, lazy in tensors.items() if lazy.nbytes > limit} if options.split_large else set()


def _place_of(lazy: LazyTensor) -> tuple[int, ByteRange | None]:
    """Return where the bytes of a tensor are."""
    return id(lazy.source), lazy.span


def _origins(
    new: LazyTensors, wanted: LazyTensors, opened: _Opened, variant: str | None, rewrite: RewriteOptions
) -> dict[str, Origin]:
    """Return what workers need to make tensors again; nothing if a function of the caller changes them."""
    if rewrite.change is not None:
        return {}
    by_path = [(SourceToOpen.of(each, path, variant), each) for path, each in opened]
    return origins_of(new, wanted, by_path, rewrite.seed)


def _kept_of_index(sources: Sequence[Opened]) -> dict[str, Any] | None:
    """Return the metadata of the index of a single source without the sizes; None if there is no other."""
    index = sources[0].index if len(sources) == 1 else None
    metadata = {} if index is None else index.metadata
    return {key: value for key, value in metadata.items() if not key.startswith("total_")} or None
