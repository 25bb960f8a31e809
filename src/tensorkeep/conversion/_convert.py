"""Checkpoints of any kind, written as safetensors files: streamed from file to file, held against their source.

Nothing of a pickle is run. Tensors go where they are wanted; what is no tensor is left out and said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import index_name, parse_size, refuse, save_checkpoint, stem_of_weights, verify
from tensorkeep.checkpoint.rewriting import (
    Progress,
    changed,
    check_kept_digests,
    digested,
    identity_of,
    refuse_replaced,
)
from tensorkeep.checkpoint.workers import Meter
from tensorkeep.conversion._archive_sums import check_sums
from tensorkeep.conversion._conversion import Conversion
from tensorkeep.conversion._sources import Sources
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.tensors import LazyTensors, Renaming, Selector

__all__ = ["convert"]

_Path = str | os.PathLike[str]

_SUFFIX: Final = ".safetensors"
_NO_LIMIT: Final = 2**62
_SHOWN: Final = 5


def convert(
    source: _Path | Iterable[_Path],
    destination: _Path,
    *,
    max_shard_size: int | str = "5GB",
    drop_unknown: bool = False,
    select: Selector | Iterable[Selector] | None = None,
    drop: Selector | Iterable[Selector] | None = None,
    rename: Renaming | None = None,
    strip_prefix: str | None = None,
    cast: Any = None,
    base_name: str = "model",
    variant: str | None = None,
    output_variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    durable: bool = True,
    check: bool = True,
    progress: Progress | None = None,
) -> Conversion:
    """Write a checkpoint of any kind as safetensors, complete or not at all, without running anything of it.

    Files of `torch.save` in all their forms, sets of them with an index, directories of them, and safetensors files.
    The bytes of tensors go from file to file by the kernel, and are never all in memory. A tensor that stands under
    several names is stored once, under the first; the metadata have the others.

    Args:
        source: A file, an index or a directory; or several, whose tensors follow each other.
        destination: A directory, made if its parent is there; or the name of one file, which ends in `.safetensors`.
            What stands there stays whole until the new checkpoint is.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`. A single file has no limit.
        drop_unknown: Whether to take the tensors out of a file that also holds objects that are not known to be data,
            or names what could only do harm. Otherwise such a file is refused.
        select: Tensors to take: shell patterns for whole names, or functions of a name; all if None.
        drop: Tensors to leave out of these.
        rename: Old name to new, for those that change; or a function that gives the new name of each.
        strip_prefix: Taken from the names after that, where they have it.
        cast: What floating-point tensors are converted to, such as `"bf16"`; see `LazyTensor.cast`.
        base_name: What file names in a directory begin with.
        variant: Which checkpoint of a source directory, such as `"fp16"`.
        output_variant: What the new one is called, such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each file; None keeps that of the source, if it has any.
        sha256: Whether an index gets the SHA-256 of each file.
        durable: Whether to wait until the disk has everything (fsync).
        check: Whether the source is held against the sums that it carries (CRC-32 of torch's archives, digests), and
            each tensor that was written is read back and held against the source, before anything is replaced.
        progress: Called with the bytes checked and written so far and those in all, by one thread at a time. What it
            raises ends the work, and the destination is as it was before.

    Returns:
        What was written, and what was left out.

    Raises:
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        UnsafeError: If a pickle holds objects that are not known to be data, or names what could only do harm, and
            `drop_unknown` is false. Nothing was run.
        IntegrityError: If a checkpoint is not whole, bytes are not those that were saved, or those written are not
            those of the source.
        SourceChangedError: If a source was changed meanwhile.
        FormatError: If a file is malformed.
        DtypeError: If a file of tensors cannot hold the dtype of a tensor, or there is no such dtype to cast to.
        TensorNotFoundError: If no tensor is selected, dropped or left, or there is none of a name to rename or with
            the prefix.
        RefusedError: If two tensors would have one name.
        LimitError: If something is over a bound.
        TypeError: If a name or metadata is not text.
        UnsupportedError: If there are no tensors, or tensors without data, or an argument is invalid.
        BusyError: If another process is saving there.
        TransportError: If the source cannot be read, or the destination not be written.
    """
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    if not paths:
        raise UnsupportedError("there is nothing to convert", expected="at least one checkpoint")
    target = _target_of(os.fspath(destination), base_name, output_variant, parse_size(max_shard_size))
    with ExitStack() as files:
        sources = Sources(paths, variant, files, drop_unknown=drop_unknown)
        identities = {path: identity_of(path) for path in sources.files}
        wanted = sources.wanted(select, drop)
        new = changed(wanted, rename, strip_prefix, cast)
        _refuse_dtypes(new)
        ties = sources.ties(wanted, new)
        stored = new.drop(ties.aliases.__contains__)
        work = _Work(sources, wanted, new, stored.nbytes, progress, is_checked=check)
        work.check_digests(variant)
        wait_for_sums = files.enter_context(work.summing())
        written: list[str] = []

        def finish(staged: Mapping[str, str]) -> None:
            written.extend(staged)
            wait_for_sums()
            if check:
                work.read_back(staged)
            refuse_replaced(identities)

        save_checkpoint(
            stored,
            target.directory,
            max_shard_size=target.max_shard_nbytes,
            base_name=target.base,
            variant=target.variant,
            metadata=_metadata(metadata, new, ties.aliases),
            sha256=sha256,
            durable=durable,
            progress=work.part(),
            before_commit=finish,
        )
    return Conversion(
        path=os.fspath(destination),
        sources=tuple(paths),
        index=target.index if sha256 or len(written) > 1 else None,
        files=tuple(written),
        n_tensors=len(stored),
        nbytes=stored.nbytes,
        ties=ties.aliases,
        copied=ties.copied,
        composites=sources.holdings.composites,
        left_out=sources.left_out,
        plain=sources.holdings.plain,
        n_plain=sources.holdings.n_plain,
        is_checked=check,
        n_summed=len(work.sums),
    )


class _Target(msgspec.Struct, frozen=True):
    """Where a conversion goes.

    Attributes:
        directory: Where its files are to be.
        base: What their names begin with.
        variant: What sets them apart, such as `"fp16"`, or None.
        max_shard_nbytes: Bytes of tensors in one of them.
    """

    directory: str
    base: str
    variant: str | None
    max_shard_nbytes: int

    @property
    def index(self) -> str:
        """Name of the index, if there is one."""
        return index_name(self.base, self.variant)


def _target_of(destination: str, base: str, variant: str | None, max_shard_nbytes: int) -> _Target:
    if not destination.endswith(_SUFFIX) or os.path.isdir(destination):
        return _Target(destination, base, variant, max_shard_nbytes)
    directory, name = os.path.split(destination)
    stem = stem_of_weights(name)
    if stem is None:
        raise UnsupportedError(
            "the destination has the name of a shard, and would be taken for one of several",
            path=destination,
            expected="a directory, or a name such as model.safetensors",
            found=name,
        )
    return _Target(directory or os.curdir, stem, None, _NO_LIMIT)


class _Work:
    """What there is to be done, in bytes: sources checked, tensors written, files read back."""

    def __init__(
        self,
        sources: Sources,
        wanted: LazyTensors,
        new: LazyTensors,
        nbytes: int,
        progress: Progress | None,
        *,
        is_checked: bool,
    ) -> None:
        self._checkpoints = sources.checkpoints
        self._remade = {old for old, lazy in zip(wanted, new.values(), strict=True) if lazy.digest is None}
        self.sums = sources.sums(wanted) if is_checked else []
        n_digested = sum(
            lazy.nbytes for _, source in self._checkpoints for lazy in digested(source, self._remade).values()
        )
        n_summed = sum(len(summed.span) for summed in self.sums)
        self._meter = Meter(progress, n_digested + n_summed + nbytes * (2 if is_checked else 1))

    def part(self) -> Progress:
        """Return what takes the bytes done so far of one part of the work."""
        count = self._meter.counting()
        return lambda done, _: count(done)

    def check_digests(self, variant: str | None) -> None:
        """Hold sources against their digests, where these cannot be kept: no damage is made to look whole."""
        check_kept_digests(self._checkpoints, variant, self._remade, self.part())

    @contextmanager
    def summing(self) -> Iterator[Callable[[], None]]:
        """Hold sources against their CRC-32 while the block writes; what is given waits for it, and raises."""
        from concurrent.futures import ThreadPoolExecutor  # 18 ms, which opening need not pay

        with ThreadPoolExecutor(1, thread_name_prefix="tensorkeep-sums") as thread:
            future = thread.submit(check_sums, self.sums, self._meter)
            try:
                yield future.result
            except BaseException:
                self._meter.stop()
                raise

    def read_back(self, staged: Mapping[str, str]) -> None:
        """Hold files that were written against the digests in their headers, which were made of the sources."""
        for name, path in staged.items():
            refuse(verify(path, progress=self.part()).findings, name)


def _refuse_dtypes(tensors: LazyTensors) -> None:
    names = [name for name, lazy in tensors.items() if lazy.dtype in ALL_BY_NAME and lazy.dtype not in BY_NAME]
    if names:
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        raise DtypeError(
            "a safetensors file cannot hold the dtype of some tensors",
            path=tensors.path,
            tensor=names[0],
            found=", ".join(f"`{name}` {tensors[name].dtype}" for name in names[:_SHOWN]) + more,
            hint="Leave them out with drop= (--drop); torch.view_as_real makes real numbers of them",
        )


def _metadata(
    given: Mapping[str, str] | None, tensors: LazyTensors, aliases: Mapping[str, str]
) -> Mapping[str, str] | None:
    if given is None and tensors.has_metadata:
        given = tensors.metadata
    return {**(given or {}), **aliases} if aliases else given
