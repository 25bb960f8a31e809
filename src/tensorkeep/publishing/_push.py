"""`push`: publishes a checkpoint on the Hub or in a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tensorkeep.checkpoint import reshard
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Opened
from tensorkeep.kinds.given import refuse_to_open_again, source_of
from tensorkeep.publishing._hub_repository import HubRepository
from tensorkeep.publishing._package import Package, package, refuse_damage, refuse_encrypted
from tensorkeep.publishing._pushed import Push
from tensorkeep.publishing._to_hub import HubOptions, push_to_hub
from tensorkeep.publishing._to_store import push_to_store
from tensorkeep.tensors import LazyTensors
from tensorkeep.transport import RemotePath, is_remote, local_path, refuse_damaged_url


def push(
    source: str | os.PathLike[str] | LazyTensors,
    destination: str | os.PathLike[str],
    *,
    max_shard_size: int | str | None = None,
    split_large: bool = False,
    variant: str | None = None,
    include: Iterable[str] = (),
    message: str | None = None,
    create: bool = False,
    private: bool | None = None,
    verify: bool = True,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Push:
    """Publish a checkpoint on the Hugging Face Hub or in a bucket: readers see the old one or the new one, whole.

    The files of the checkpoint are sent as they are. From a directory, its configuration, tokenizer, license and the
    like are sent too, but code only if `include` names it. Of a directory with a manifest, all that it lists is sent.

    On the Hub, a single commit adds the new files and removes those that only the old index names. If another commit
    comes in between, the push is refused. In a bucket, one conditional write replaces the index. Files that are there
    already are not sent again, and other files are left alone: a repository keeps the README.md that it has. A push
    that is killed has published nothing; push again.

    Args:
        source: A directory, an index or a file; or an open checkpoint or a view, whose tensors alone are sent, in new
            shards. Those of a view are computed one after another. What is open stays open.
        destination: `hf://org/model`, `hf://org/model@branch/folder`, or the URL of a directory in a bucket (s3, gs,
            az, any writable file system of fsspec). Or the result of `tensorkeep.remote`, with a token for instance.
        max_shard_size: Size of new shards to send instead, such as `"5GB"`; they take disk space during the push:
            beside the source or, for what is open, in the directory for temporary files (`TMPDIR`). None sends the
            files as they are, and what is open in shards of 5 GB.
        split_large: Whether tensors larger than a shard may be split over several of the new shards. Only tensorkeep
            joins them again.
        variant: Such as `"fp16"`: which checkpoint of a directory to send.
        include: Shell patterns of more files of the directory to send, such as `"modeling_*.py"`.
        message: Message of the commit on the Hub.
        create: Whether to make a repository or branch that does not exist.
        private: Whether a new repository is private. None leaves that to the settings of its owner.
        verify: Whether to check all bytes against their digests before they are sent; a damaged checkpoint is not
            published. What computed tensors are made of is checked if it was opened with `verify=True`.
        overwrite: Whether to replace another checkpoint in a bucket, which keeps no history.
        dry_run: Whether to change nothing, and return what would be sent and removed.
        progress: Called with the bytes sent so far and the total, by one thread at a time.

    Returns:
        What was sent, what was there already, what was removed, and the commit.

    Raises:
        SourceMissingError: If there is no checkpoint, no such repository or branch, or no file that `include` names.
        IntegrityError: If the checkpoint is damaged.
        FormatError: If a file is not a checkpoint or an index.
        AccessDeniedError: If there is no token, or it may not write there.
        SourceChangedError: If somebody else changed the destination during the push, or a file of the source changed.
        DestinationExistsError: If a bucket has another checkpoint there and `overwrite` is not set.
        UnsupportedError: If the destination is not a URL that can be written to, or the source cannot be resharded;
            if what is open was encrypted, or is given with `variant` or `include`.
        RefusedError: If a file's name is not allowed on every system.
        LimitError: If there are too many files for one commit.
        MissingDependencyError: If huggingface_hub, obstore or fsspec is needed and not installed.
        TransportError: If something cannot be read or sent.

    Examples:
        >>> tensorkeep.push("my-model", "memory://published").sent["model.safetensors"] > 100_000
        True
    """
    given = source_of(source, "push")
    target = _target(os.fspath(destination))
    patterns = (include,) if isinstance(include, str) else tuple(include)
    if isinstance(given, Opened):
        refuse_to_open_again(given, variant=variant)
        _refuse_beside_open(given, patterns)
        name, shards = (
            "tensors",
            _shards_of_open(given, max_shard_size or "5GB", split_large=split_large, verify=verify),
        )
    else:
        path = local_path(given, hint="Fetch it first: tensorkeep fetch")
        name = os.path.basename(os.path.abspath(path))
        shards = _shards_of(path, max_shard_size, variant, split_large=split_large, verify=verify, patterns=patterns)
    with shards as new:
        if target.scheme != "hf":
            return push_to_store(new, target, overwrite=overwrite, dry_run=dry_run, progress=progress)
        options = HubOptions(
            message=message or f"Push {name} with tensorkeep",
            create=create,
            private=private,
            dry_run=dry_run,
            progress=progress,
        )
        return push_to_hub(new, HubRepository(target), options)


def _target(destination: str) -> RemotePath:
    refuse_damaged_url(destination)
    if not is_remote(destination):
        raise UnsupportedError(
            "not a URL",
            expected="one such as hf://org/model or s3://bucket/model",
            found=repr(destination),
            hint="tensorkeep.reshard writes to a directory",
        )
    target = RemotePath.of(destination)
    if target.scheme != "hf":
        target.check_writable()
    return target


@contextmanager
def _shards_of(
    source: str,
    max_shard_size: int | str | None,
    variant: str | None,
    *,
    split_large: bool,
    verify: bool,
    patterns: tuple[str, ...],
) -> Iterator[Package]:
    """Yield what to publish; new shards are beside the source while the block runs."""
    if verify:
        refuse_damage(source, variant)
    if max_shard_size is None:
        yield package(source, variant=variant, include=patterns, is_checked=verify)
        return
    refuse_encrypted(source, variant)
    home = source if os.path.isdir(source) else None
    beside = os.path.dirname(os.path.realpath(source))
    with tempfile.TemporaryDirectory(
        prefix=".tensorkeep-push-", dir=beside if os.access(beside, os.W_OK) else None
    ) as directory:
        reshard(
            source,
            directory,
            max_shard_size=max_shard_size,
            split_large=split_large,
            variant=variant,
            output_variant=variant,
            sha256=True,
            durable=False,
        )
        yield package(directory, variant=variant, include=patterns, is_checked=True, extras_of=home)


def _refuse_beside_open(source: Opened, patterns: tuple[str, ...]) -> None:
    """Refuse to publish secrets as plain tensors, and to send files that a view does not have."""
    if source.encryption is not None:
        raise UnsupportedError(
            "the tensors come from an encrypted checkpoint, but new shards would not be encrypted",
            path=source.path,
            hint="Use tensorkeep.save_checkpoint(tensors, directory, encrypt=...), then push the directory",
        )
    if patterns:
        raise UnsupportedError(
            "only the tensors of what is open are sent",
            path=source.path,
            found=f"include={list(patterns)}",
            hint="Save them beside the files with tensorkeep.save_checkpoint, then push the directory",
        )


@contextmanager
def _shards_of_open(
    source: Opened, max_shard_size: int | str, *, split_large: bool, verify: bool
) -> Iterator[Package]:
    """Yield what to publish of tensors that are open: they are written to new shards, which are then checked."""
    with tempfile.TemporaryDirectory(prefix="tensorkeep-push-") as directory:
        reshard(
            source,
            directory,
            max_shard_size=max_shard_size,
            split_large=split_large,
            sha256=True,
            durable=False,
        )
        if verify:
            refuse_damage(directory, None, trust=False)
        yield package(directory, variant=None, include=(), is_checked=True)
