"""Existing checkpoints written again: other shards, fewer tensors, other names and dtypes, several as one.

A view and a save. The kernel copies tensors that do not change, and their digests come along. Other tensors get new
digests, so they are first checked against their old ones: damage is never made to look whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorkeep.checkpoint.rewriting._pipeline import RewriteOptions
from tensorkeep.checkpoint.rewriting._rewrite import rewrite_as_one
from tensorkeep.checkpoint.saving import SaveOptions
from tensorkeep.encryption import Encryption, KeyLike, Keys
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES
from tensorkeep.kinds.given import source_of, sources_of
from tensorkeep.layout import Index, parse_size
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensors, Renaming, Selector
from tensorkeep.texts import same_arguments_as

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorkeep.trust import Trust

_Path = str | os.PathLike[str]
_Source = _Path | LazyTensors


def reshard(
    source: _Source,
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
    trust: Trust | None = None,
) -> None:
    """Write a checkpoint with other shards, names or dtypes, complete or not at all, in constant memory.

    The kernel copies bytes from file to file, and digests come along; tensors without a digest get one on the way.
    Block digests are computed again if a source has them.
    Tensors that are cast, split or assembled are first checked against the digests that they had.

    Args:
        source: A directory, an index or a single file, of any library; or an open checkpoint or a view, whose
            tensors are computed while they are written. What is open stays open. The checkpoint at the destination
            does not count as the source if the source is a view, or was opened before that was saved.
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
        trust: Whose signatures count; see `open`. Then only what they signed is read.

    Raises:
        DestinationExistsError: If there is a checkpoint at the destination, and `overwrite` is false.
        EncryptedError: If the source is encrypted, and the key is missing or another one.
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If the checkpoint is not whole, or bytes that would change are not those that were saved.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        FormatError: If the index or a header is malformed, or a new name or text is impossible.
        TensorNotFoundError: If no tensor is selected, dropped or left, or no tensor has a name to rename or the
            prefix.
        RefusedError: If two tensors would have one name.
        DtypeError: If there is no such dtype to cast to.
        TypeError: If a name or metadata is not text, or the source is tensors that are not lazy.
        UnsupportedError: If a size, name or layout is invalid, a directory has several checkpoints, or an open source
            is given with `variant`, `key`, `trust` or, if it is a view, `provenance`.
        LimitError: If there are more names than a header can hold, or tensors that share bytes would take many times
            the size of their files.
        BusyError: If another process is saving there.
        SourceChangedError: If the source was saved again meanwhile.
        TransportError: If the source cannot be read, the directory's parent is missing, the directory is not
            writable, or the disk is full.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.

    Examples:
        >>> tensorkeep.reshard("my-model", "halves", max_shard_size="100KB", cast="bf16")
        >>> tensorkeep.open("halves")["pooler.dense.bias"].dtype
        'BF16'
    """
    rewrite_as_one(
        [source_of(source, "reshard")],
        directory,
        variant,
        RewriteOptions(
            select=select, drop=drop, rename=rename, strip_prefix=strip_prefix, change=change, cast=cast, seed=seed
        ),
        SaveOptions(
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
        ),
        overwrite=overwrite,
        keys=Keys.given(key),
        trust=trust,
        operation="reshard" if provenance else None,
    )


@same_arguments_as(reshard)
def join(  # noqa: D417 - the decorator explains the others
    sources: _Source | Iterable[_Source],
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
    trust: Trust | None = None,
) -> None:
    """Write several checkpoints as one, complete or not at all, in constant memory.

    All other arguments are as for `reshard`.

    Args:
        sources: Directories, indexes, single files, open checkpoints or views. Their tensors follow each other; names
            must be unique.
        directory: The destination, created if its parent exists, or the URL of a directory in a bucket.
        variant: Which checkpoint of each source directory, such as `"fp16"`.
        select: Tensors to take from all sources together; all if None.
        metadata: Free text by key, for each shard; None keeps the metadata of all sources. Of what they say of single
            tensors, such as `numpy.types`, all is kept; of any other key, the first source's text where they differ.

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
    rewrite_as_one(
        sources_of(sources, "join"),
        directory,
        variant,
        RewriteOptions(
            select=select, drop=drop, rename=rename, strip_prefix=strip_prefix, change=change, cast=cast, seed=seed
        ),
        SaveOptions(
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
        ),
        overwrite=overwrite,
        keys=Keys.given(key),
        trust=trust,
        operation="join" if provenance else None,
    )
