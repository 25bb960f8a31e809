"""Checkpoints of any kind, written as safetensors files: streamed from file to file, held against their source.

Nothing of a pickle is run. Tensors go where they are wanted, with the nested value that they are parts of; objects
that are not known to be data are left out and said.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from tensorkeep.checkpoint import Progress, RewriteOptions, SaveOptions, refuse_replaced, transform, write_checkpoint
from tensorkeep.collector import PausedCollector
from tensorkeep.conversion._checks import SourceChecks
from tensorkeep.conversion._conversion import Conversion
from tensorkeep.conversion._sources import Sources
from tensorkeep.conversion._stored import prepared_of
from tensorkeep.conversion._target import DEFAULT_BASE, DEFAULT_SHARD_SIZE, target_of
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.formats.pickles import DEFAULT_LIMITS, PickleLimits
from tensorkeep.formats.safetensors import SEAL_KEY
from tensorkeep.phrases import listed
from tensorkeep.tensors import LazyTensors, Renaming, Selector

_Path = str | os.PathLike[str]

_RESERVED: Final = ("format", "__metadata__", SEAL_KEY)
"""What metadata have text under that is not the name of a tensor."""


def convert(
    source: _Path | Iterable[_Path],
    destination: _Path,
    *,
    max_shard_size: int | str = DEFAULT_SHARD_SIZE,
    drop_unknown: bool = False,
    select: Selector | Iterable[Selector] | None = None,
    drop: Selector | Iterable[Selector] | None = None,
    rename: Renaming | None = None,
    strip_prefix: str | None = None,
    cast: Any = None,
    base_name: str = DEFAULT_BASE,
    variant: str | None = None,
    output_variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    durable: bool = True,
    check: bool = True,
    share_views: bool = False,
    limits: PickleLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> Conversion:
    """Write a checkpoint of any kind as safetensors, complete or not at all, without running anything of it.

    Files of `torch.save` in all their forms, sets of them with an index, directories of them, and safetensors files.
    The bytes of tensors go from file to file by the kernel, and are never all in memory. A tensor that stands under
    several names is stored once, under the first; the metadata have the others.

    Of one source that is converted as a whole, `load` gives the nested value back: plain data, arrays of any dtype,
    sparse and quantized tensors. Each tensor has the name that it has in a state dict, for any reader.

    Args:
        source: A file, an index or a directory; or several, whose tensors follow each other.
        destination: A directory, made if its parent is there; or the name of one file, which ends in `.safetensors`.
            What stands there stays whole until the new checkpoint is.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`. For directories only:
            a single file has no limit.
        drop_unknown: Whether to convert a file that also holds objects that are not known to be data, or names what
            could only do harm. A dict of its tensors stands for such an object; without any it is left out, and in
            lists None stands for it. Otherwise such a file is refused.
        select: Tensors to take: shell patterns for whole names, or functions of a name; all if None. Of tensors that
            are chosen, only the names are kept.
        drop: Tensors to leave out of these.
        rename: Old name to new, for those that change; or a function that gives the new name of each.
        strip_prefix: Taken from the names after that, where they have it.
        cast: What floating-point tensors are converted to, such as `"bf16"`; see `LazyTensor.cast`.
        base_name: What file names in a directory begin with; a single file has its own name.
        variant: Which checkpoint of a source directory, such as `"fp16"`.
        output_variant: What the new one is called, such as `"fp16"`, which gives `model.fp16.safetensors`; for
            directories only.
        metadata: Free text by key, for each file; None keeps that of the source, if it has any. A tensor whose name
            is one of these keys is stored on its own, also where it is the same as another.
        sha256: Whether an index gets the SHA-256 of each file.
        durable: Whether to wait until the disk has everything (fsync).
        check: Whether the source is held against the sums that it carries (CRC-32 of torch's archives, digests), and
            each tensor that was written is read back and held against the source, before anything is replaced.
        share_views: Whether memory that several tensors overlap in is stored once too. `load` lets them share it
            again, but other readers find only those that are stored. Otherwise each is stored on its own.
        limits: What the pickle of each file may cost.
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
        LimitError: If something is over a bound, or tensors that share the bytes of a file would take many times its
            size.
        TypeError: If a name or metadata is not text.
        UnsupportedError: If there are no tensors, or tensors without data, or an argument is invalid.
        BusyError: If another process is saving there.
        TransportError: If the source cannot be read, or the destination not be written.
    """
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    if not paths:
        raise UnsupportedError("there is nothing to convert", expected="at least one checkpoint")
    rewrite = RewriteOptions(select=select, drop=drop, rename=rename, strip_prefix=strip_prefix, cast=cast)
    target = target_of(os.fspath(destination), base_name, output_variant, max_shard_size)
    with ExitStack() as files:
        sources = Sources(paths, variant, files, drop_unknown=drop_unknown, limits=limits, is_shared=share_views)
        with PausedCollector():
            wanted = sources.wanted(rewrite)
            new = transform(wanted, rewrite)
            _refuse_dtypes(new)
            texts = new.metadata if metadata is None and new.has_metadata else metadata
            ties = sources.ties(wanted, new, {*_RESERVED, *(texts or {})})
            if not share_views:
                sources.refuse_expanded({
                    old for old, name in zip(wanted, new, strict=True) if name not in ties.aliases
                })
            prepared = prepared_of(new, ties.aliases, share_views=share_views)
        nbytes = sum(host.nbytes for host in prepared.to_write.values())
        checks = SourceChecks(sources, wanted, new, nbytes, progress, is_wanted=check)
        checks.check_digests()
        wait_for_sums = files.enter_context(checks.summing())
        written: list[str] = []

        def finish(staged: Mapping[str, str]) -> None:
            written.extend(staged)
            sources.refuse_to_replace(os.path.join(target.directory, name) for name in staged)
            wait_for_sums()
            checks.read_back(staged)
            refuse_replaced(sources.identities)

        options = SaveOptions(
            max_shard_nbytes=target.max_shard_nbytes,
            base_name=target.base,
            variant=target.variant,
            metadata=texts,
            sha256=sha256,
            durable=durable,
            progress=checks.part(),
            before_commit=finish,
        )
        write_checkpoint(prepared, target.directory, options)
    return Conversion(
        path=os.fspath(destination),
        sources=tuple(paths),
        index=target.index if sha256 or len(written) > 1 else None,
        files=tuple(written),
        n_tensors=len(prepared.to_write),
        nbytes=nbytes,
        ties={name: alias.of for name, alias in prepared.aliases.items()},
        overlapped=() if share_views else ties.overlapped,
        composites=sources.composites,
        left_out=sources.left_out,
        has_tree=new.state is not None,
        n_values=sources.n_values,
        is_checked=check,
        n_summed=checks.n_summed,
    )


def _refuse_dtypes(tensors: LazyTensors) -> None:
    names = [name for name, lazy in tensors.items() if lazy.dtype in ALL_BY_NAME and lazy.dtype not in BY_NAME]
    if names:
        raise DtypeError(
            "a safetensors file cannot hold the dtype of some tensors",
            path=tensors.path,
            tensor=names[0],
            found=listed(f"`{name}` {tensors[name].dtype}" for name in names),
            hint="Leave them out with drop= (--drop); torch.view_as_real makes real numbers of them",
        )
