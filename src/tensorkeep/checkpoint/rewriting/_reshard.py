"""Existing checkpoints written again: other shards, fewer tensors, other names and dtypes, several as one.

A view and a save. The kernel copies tensors that do not change, and their digests come along. Other tensors get new
digests, so they are first checked against their old ones: damage is never made to look whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.checkpoint._open import open_found
from tensorkeep.checkpoint.rewriting._existing import refuse_existing
from tensorkeep.checkpoint.rewriting._pipeline import (
    RewriteOptions,
    check_replaced,
    concatenate,
    digests_to_replace,
    identity_of,
    refuse_replaced,
    select_and_drop,
    subprogress,
    transform,
)
from tensorkeep.checkpoint.rewriting._provenance import provenance_of
from tensorkeep.checkpoint.rewriting._same_arguments import same_arguments_as
from tensorkeep.checkpoint.saving import SaveOptions, refuse_file_name, write_checkpoint
from tensorkeep.encryption import Encryption, KeyLike, Keys
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES
from tensorkeep.kinds import Opened, OpenOptions, Place
from tensorkeep.kinds.origins import Origin, SourceToOpen, origins_of
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import Index, parse_size
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors import LazyTensor, LazyTensors, Renaming, Selector, check_target, prepare
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, is_directory, is_remote, listing_cache

if TYPE_CHECKING:
    from concurrent.futures import Executor

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
    change: Callable[[LazyTensors], LazyTensors] | None = None,
    cast: Any = None,
    seed: int | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    executor: Executor | None = None,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
    provenance: bool = False,
) -> None:
    """Write a checkpoint with other shards, names or dtypes, complete or not at all, in constant memory.

    The kernel copies bytes from file to file, and digests come along; tensors without a digest get one on the way.
    Block digests are computed again if a source has them.
    Tensors that are cast, split or assembled are first checked against the digests that they had.

    Args:
        source: A directory, an index or a single file, of any library.
        directory: The destination, created if its parent exists, or the URL of a directory in a bucket. It may be the
            directory of the source, which stays whole until the new checkpoint is complete, and is then replaced if
            its file names begin the same way; with `select` or `drop`, only if `overwrite` is true.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`.
        balance: Whether to make shards as equal in size as the order of the tensors allows.
        split_large: Whether to split larger tensors over shards by rows. Only tensorkeep assembles them again.
        layout: An index or its path: each tensor goes to the file that the index names, split as it says.
        base_name: What file names begin with.
        variant: Which checkpoint of a source directory, such as `"fp16"`.
        output_variant: The variant of the new checkpoint, such as `"fp16"`, which gives `model.fp16.safetensors`.
        select: Tensors to take: shell patterns for whole names, or functions of a name; all if None.
        drop: Tensors to leave out of the selected ones.
        rename: Old name to new, for those that change; or a function that returns the new name of each.
        strip_prefix: Removed from names after renaming, where they have it.
        change: A function that takes the tensors, as renamed, and returns what to write: computed tensors, or what
            a key map makes of them (`KeyMap.apply`). The tree of a saved state is left out.
        cast: The dtype to convert floating-point tensors to, such as `"bf16"`; see `LazyTensor.cast`.
        seed: Rounds what is cast at random by this seed; see `LazyTensor.cast`.
        metadata: Free text by key, for each shard; None keeps the metadata of the source.
        sha256: Whether the index gets the SHA-256 of each shard.
        overwrite: Whether to replace a checkpoint at the destination that is not a source: its tensors and its index.
            Other files there, such as `config.json`, stay. Otherwise it is refused.
        durable: Whether to wait until everything is on the disk (fsync).
        progress: Called with the bytes checked and written so far and the total, by one thread at a time. An
            exception from it ends the work and leaves the directory as it was.
        executor: What copies the tensors in place of threads of this process: any `concurrent.futures.Executor` whose
            tasks can be pickled, such as a `ProcessPoolExecutor` or dask's `client.get_executor()`. All workers must
            see the source, and the destination must be a directory that they share. This process commits.
        align: Bytes at whose multiples tensors begin in a file, if their size is one too; see `tensorkeep.save`.
        order: Names or shell patterns whose tensors come first in each file, in this order; see `tensorkeep.save`.
        key: The key of an encrypted source, the path of a file with it, or several of these; what is not encrypted is
            then refused. None uses keys from the environment.
        encrypt: The key to encrypt the new checkpoint with, the path of a file with it, or an `Encryption`. None for
            plain files, also of an encrypted source.
        provenance: Whether to write, beside the new files, what they came from: an in-toto statement
            (`model.provenance.json`) with the digests of all sources, the arguments and the version.

    Raises:
        DestinationExistsError: If there is a checkpoint at the destination, and `overwrite` is false.
        EncryptedError: If the source is encrypted, and the key is missing or another one.
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If the checkpoint is not whole, or bytes that would change are not those that were saved.
        FormatError: If the index or a header is malformed, or a new name or text is impossible.
        TensorNotFoundError: If no tensor is selected, dropped or left, or no tensor has a name to rename or the
            prefix.
        RefusedError: If two tensors would have one name.
        DtypeError: If there is no such dtype to cast to.
        TypeError: If a name or metadata is not text.
        UnsupportedError: If a size, name or layout is invalid, or a directory has several checkpoints.
        LimitError: If there are more names than a header can hold.
        BusyError: If another process is saving there.
        SourceChangedError: If the source was saved again meanwhile.
        TransportError: If the source cannot be read, the directory's parent is missing, the directory is not
            writable, or the disk is full.

    Examples:
        >>> tensorkeep.reshard("my-model", "halves", max_shard_size="100KB", cast="bf16")
        >>> tensorkeep.open("halves")["pooler.dense.bias"].dtype
        'BF16'
    """
    rewrite = RewriteOptions(
        select=select, drop=drop, rename=rename, strip_prefix=strip_prefix, change=change, cast=cast, seed=seed
    )
    options = SaveOptions(
        max_shard_nbytes=parse_size(max_shard_size),
        balance=balance,
        split_large=split_large,
        layout=layout,
        base_name=base_name,
        variant=output_variant,
        metadata=metadata,
        sha256=sha256,
        durable=durable,
        progress=progress,
        executor=executor,
        align=align,
        order=order,
        encryption=Encryption.of(encrypt),
    )
    operation = "reshard" if provenance else None
    rewrite_as_one(
        [source],
        directory,
        variant,
        rewrite,
        options,
        overwrite=overwrite,
        keys=Keys.given(key),
        operation=operation,
    )


@same_arguments_as(reshard)
def join(  # noqa: D417 - the decorator explains the others
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
    change: Callable[[LazyTensors], LazyTensors] | None = None,
    cast: Any = None,
    seed: int | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    executor: Executor | None = None,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
    provenance: bool = False,
) -> None:
    """Write several checkpoints as one, complete or not at all, in constant memory.

    All other arguments are as for `reshard`.

    Args:
        sources: Directories, indexes or single files. Their tensors follow each other; names must be unique.
        directory: The destination, created if its parent exists, or the URL of a directory in a bucket.
        variant: Which checkpoint of each source directory, such as `"fp16"`.
        select: Tensors to take from all sources together; all if None.
        metadata: Free text by key, for each shard; None keeps the metadata of all sources, and the first source's
            text where they differ.

    Raises:
        DestinationExistsError: If there is a checkpoint at the destination, and `overwrite` is false.
        RefusedError: If a tensor is in two of the sources, or two would have one name.
        UnsupportedError: If there are no sources, or `reshard` would raise it.
        TensorkeepError: If `reshard` would raise it.

    Examples:
        >>> tensorkeep.join(["model.safetensors", "my-model"], "together")
        >>> len(tensorkeep.open("together"))
        45
    """
    rewrite = RewriteOptions(
        select=select, drop=drop, rename=rename, strip_prefix=strip_prefix, change=change, cast=cast, seed=seed
    )
    options = SaveOptions(
        max_shard_nbytes=parse_size(max_shard_size),
        balance=balance,
        split_large=split_large,
        layout=layout,
        base_name=base_name,
        variant=output_variant,
        metadata=metadata,
        sha256=sha256,
        durable=durable,
        progress=progress,
        executor=executor,
        align=align,
        order=order,
        encryption=Encryption.of(encrypt),
    )
    paths = [sources] if isinstance(sources, str | os.PathLike) else sources
    operation = "join" if provenance else None
    rewrite_as_one(
        paths, directory, variant, rewrite, options, overwrite=overwrite, keys=Keys.given(key), operation=operation
    )


def rewrite_as_one(
    sources: Iterable[_Path],
    directory: _Path,
    variant: str | None,
    rewrite: RewriteOptions,
    options: SaveOptions,
    *,
    overwrite: bool,
    keys: Keys | None = None,
    operation: str | None = None,
) -> None:
    """Write checkpoints as one: what `reshard` and `join` do; `operation` is what its provenance calls that."""
    paths = [os.fspath(path) for path in sources]
    if not paths:
        raise UnsupportedError("there is nothing to join", expected="at least one checkpoint")
    layout = options.layout
    if layout is not None and not isinstance(layout, Index):
        layout = read_index(os.fspath(layout))
    with ExitStack() as files:
        refuse_file_name(check_target(directory))
        opened = [(path, whole_checkpoint(path, variant, files, keys)) for path in paths]

        def refuse_loss(new: Collection[str] = ()) -> None:
            if not overwrite:
                own = [source for _, source in opened] if rewrite.takes_all else []
                refuse_existing(os.fspath(directory), options.stem, own, new)

        wanted, _ = select_and_drop(concatenate([source for _, source in opened]), rewrite)
        refuse_loss()
        state_files = {file for _, source in opened for file in (source.path, *source.state_files)}
        identities = {file: identity_of(file) for file in state_files if is_remote(file) or os.path.isfile(file)}
        new = transform(wanted, rewrite)
        split = _split_names(new, options, layout)
        kept = {_place_of(lazy) for lazy in new.values() if lazy.digest is not None and lazy.name not in split}
        remade = {name for name, lazy in wanted.items() if _place_of(lazy) not in kept}
        checks = [(path, digests_to_replace(source, remade)) for path, source in opened]
        n_checked = sum(len(check.span) for _, of_path in checks for check in of_path)
        total = n_checked + new.nbytes
        report = options.progress or (lambda _, __: None)
        check_replaced(checks, ProgressMeter(report, total), options.executor)
        describe = None
        if operation is not None:
            read = [source for _, source in opened]
            describe = provenance_of(operation, read, rewrite, options, os.fspath(directory))

        def finish(staged: Collection[str]) -> None:
            refuse_replaced(identities)
            refuse_loss(staged)

        complete = msgspec.structs.replace(
            options,
            layout=layout,
            index_metadata=_kept_of_index([source for _, source in opened]),
            block_digests=any(source.index is not None and source.index.sidecars for _, source in opened),
            progress=subprogress(report, n_checked, total),
            origins=_origins(new, wanted, opened, variant, rewrite) if options.executor is not None else {},
            before_commit=finish,
            describe=describe,
        )
        write_checkpoint(prepare(new), directory, complete)


def _origins(
    new: LazyTensors,
    wanted: LazyTensors,
    opened: Sequence[tuple[str, Opened]],
    variant: str | None,
    rewrite: RewriteOptions,
) -> dict[str, Origin]:
    """Return what workers need to make tensors again; nothing if a function of the caller changes them."""
    if rewrite.change is not None:
        return {}
    by_path = [(SourceToOpen.of(each, path, variant), each) for path, each in opened]
    return origins_of(new, wanted, by_path, rewrite.seed)


def _kept_of_index(sources: list[Opened]) -> dict[str, Any] | None:
    """Return the metadata of the index of a single source without the sizes; None if there is no other."""
    index = sources[0].index if len(sources) == 1 else None
    metadata = {} if index is None else index.metadata
    return {key: value for key, value in metadata.items() if not key.startswith("total_")} or None


def whole_checkpoint(path: str, variant: str | None, files: ExitStack, keys: Keys | None = None) -> Opened:
    """Open a finished checkpoint that holds nothing but tensors; `files` closes it."""
    options = OpenOptions(variant=variant if is_directory(path) else None, keys=keys)
    with listing_cache(path) as given:
        place = Place(given, variant=options.variant)
        found = find_kind(place)
        if found.kind.is_converted:
            raise UnsupportedError(
                f"this is {found.kind.name}, and not a finished checkpoint",
                path=path,
                hint="`tensorkeep convert` (tensorkeep.convert) turns it into one",
            )
        opened = files.enter_context(open_found(place, found, options))
        opened.require_names()
        if left_out := opened.left_out():
            raise UnsupportedError(
                "this holds more than tensors",
                path=path,
                found=listed(f"`{other.name}`: {other.what}" for other in left_out),
                hint="`tensorkeep convert` (tensorkeep.convert) writes the tensors and says what it leaves out",
            )
        return opened


def _place_of(lazy: LazyTensor) -> tuple[int, ByteRange | None]:
    """Return where the bytes of a tensor are."""
    return id(lazy.source), lazy.span


def _split_names(tensors: LazyTensors, options: SaveOptions, layout: Index | None) -> set[str]:
    """Return the tensors that will be split over shards."""
    if layout is not None:
        return set(layout.splits)
    limit = options.max_shard_nbytes
    return {name for name, lazy in tensors.items() if lazy.nbytes > limit} if options.split_large else set()
