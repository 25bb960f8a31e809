"""Convert checkpoints of any kind to safetensors: tensors are copied from file to file and compared with the source.

Nothing in a pickle is run. The nested value is converted with its tensors; objects that are not known to be data are
left out and reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.checkpoint import (
    Progress,
    RewriteOptions,
    SaveOptions,
    loss_guard,
    provenance_of,
    refuse_replaced,
    write_checkpoint,
)
from tensorkeep.conversion._checks import SourceChecks
from tensorkeep.conversion._content import content_of
from tensorkeep.conversion._result import Conversion
from tensorkeep.conversion._sources import Sources
from tensorkeep.conversion._target import DEFAULT_BASE, DEFAULT_SHARD_SIZE, target_of
from tensorkeep.encryption import Encryption, KeyLike, Keys
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.pickles import DEFAULT_LIMITS, PickleLimits
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES, Arrangement
from tensorkeep.kinds.given import path_of, sources_of
from tensorkeep.kinds.origins import Origin, SourceToOpen, origins_of
from tensorkeep.tensors import LazyTensors, Renaming, Selector
from tensorkeep.transport import join, split

_Path = str | os.PathLike[str]
_Source = _Path | LazyTensors

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorkeep.trust import Trust


def convert(
    source: _Source | Iterable[_Source],
    destination: _Path,
    *,
    max_shard_size: int | str = DEFAULT_SHARD_SIZE,
    drop_unknown: bool = False,
    select: Selector | Iterable[Selector] | None = None,
    drop: Selector | Iterable[Selector] | None = None,
    rename: Renaming | None = None,
    strip_prefix: str | None = None,
    dequantize: Any = None,
    cast: Any = None,
    seed: int | None = None,
    base_name: str = DEFAULT_BASE,
    variant: str | None = None,
    output_variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    overwrite: bool = False,
    durable: bool = True,
    check: bool = True,
    share_views: bool = False,
    limits: PickleLimits = DEFAULT_LIMITS,
    engine: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
    executor: Executor | None = None,
    provenance: bool = False,
    trust: Trust | None = None,
) -> Conversion:
    """Convert a checkpoint of any kind to safetensors, all or nothing, without running any of it.

    Sources are all that `open` takes, at a path or a URL: pickles in all their forms, alone, with an index or in a
    directory; checkpoints of torch.distributed.checkpoint, orbax and TensorFlow; files of NumPy, HDF5, Keras, Flax
    (msgpack), Paddle, ONNX, OpenVINO, torch.export, GGUF, Arrow, tensorizer and safetensors. Tensors are copied from
    file to file and are never all in memory. A tensor with several names is stored once, under the first; the
    metadata list the others.

    If one source is converted as a whole, `load` returns its nested value again: plain data, arrays of any dtype,
    sparse and quantized tensors. Any other safetensors reader finds each tensor by its name in the state dict.

    Args:
        source: A file, an index, a directory, an open checkpoint or a view; or several of these, whose tensors are
            concatenated. What is open stays open.
        destination: A directory, created if its parent exists, or a file name that ends in `.safetensors`; or the
            URL of either in a bucket. An existing checkpoint there stays intact until the new one is complete.
        max_shard_size: Most bytes of tensors in one shard: a number, or text such as `"5GB"`. For directories only:
            a single file has no limit.
        drop_unknown: Whether to convert files with objects that are not known to be data, or with names that could
            only do harm; otherwise they are refused. Such an object becomes a dict of the tensors in it; without
            tensors it is left out, or None in a list.
        select: Tensors to convert: shell patterns for whole names, or predicates on a name; all if None. With a
            selection, tensors are stored by name, without the nested value.
        drop: Tensors to leave out of the selection.
        rename: Old name to new name, or a function that returns the new name of each tensor.
        strip_prefix: Prefix to remove from names after renaming.
        dequantize: Dtype in which to write the numbers of quantized tensors, such as `"bf16"`; None keeps their
            blocks as rows of bytes (U8), from which `export` writes them again.
        cast: Dtype to which floating-point tensors are converted, such as `"bf16"`; see `LazyTensor.cast`.
        seed: Rounds what is cast at random by this seed; see `LazyTensor.cast`.
        base_name: Stem of the file names in a directory.
        variant: Which checkpoint of a source directory to convert, such as `"fp16"`.
        output_variant: Variant of the new checkpoint: `"fp16"` gives `model.fp16.safetensors`. For directories only.
        metadata: Free text by key, for each file; None keeps the metadata of the source. A tensor whose name is one
            of these keys is stored even if it is the same as another.
        sha256: Whether to record the SHA-256 of each file in an index.
        align: Bytes at whose multiples tensors begin in a file, if their size is one too; see `save`.
        order: Names or shell patterns whose tensors come first in each file, in this order; see `save`.
        overwrite: Whether to replace a checkpoint at the destination that is not a source: its tensors and its index.
            Other files there, such as `config.json`, stay. Otherwise it is refused.
        durable: Whether to wait until everything is on disk (fsync).
        check: Whether to compare the source with its checksums (CRC-32 in torch's archives, digests), and each
            written tensor with the source, before anything is replaced. A single file in a bucket is compared once
            it is written.
        share_views: Whether to store memory that several tensors overlap in only once. `load` restores the sharing,
            but other readers find only the stored tensors. Otherwise each tensor is stored separately.
        limits: Bounds on what the pickle of each file may cost.
        engine: The library that reads the source instead of tensorkeep; see `open`.
        dtypes: Dtypes that the file does not say, by name or shell pattern, for each source; see `open`.
        progress: Called with the bytes checked and written so far and the total, by one thread at a time. If it
            raises, the work stops and the destination is unchanged.
        key: The key of an encrypted source; see `open`.
        encrypt: The key to encrypt the new files with, the path of a file with it, or an `Encryption`.
        executor: What copies tensors and reads them back in place of threads of this process; see `reshard`. Tensors
            that are not in a file as they will be, such as cast ones, are written by this process.
        provenance: Whether to write, beside the new files, what they came from: an in-toto statement
            (`model.provenance.json`) with the digests of all sources, the arguments and the version.
        trust: Whose signatures count; see `open`. Then only what they signed is read.

    Returns:
        What was written, and what was left out.

    Raises:
        DestinationExistsError: If there is a checkpoint at the destination, and `overwrite` is false.
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        UnsafeError: If a pickle holds objects that are not known to be data, or names that could only do harm, and
            `drop_unknown` is false. Nothing was run.
        IntegrityError: If a source is incomplete or does not match its checksums, or written bytes differ from the
            source.
        EncryptedError: If a source is encrypted, and the key is missing or another one.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        SourceChangedError: If a source changed during the conversion.
        FormatError: If a file is malformed.
        DtypeError: If safetensors cannot hold the dtype of a tensor, `cast` is not a known dtype, or one of `dtypes`
            is not or has elements of another size.
        TensorNotFoundError: If `select` or `drop` matches nothing, `dtypes` names another tensor, no tensor
            is left, or no tensor has a name to rename or the prefix to strip.
        RefusedError: If two tensors would have the same name.
        LimitError: If a file exceeds a bound, or tensors that share bytes would take many times the size of their
            file.
        TypeError: If a name or metadata is not text.
        UnsupportedError: If there are no tensors, a tensor has no data, or an argument is invalid.
        BusyError: If another process is saving to the destination.
        TransportError: If a source cannot be read, or the destination cannot be written.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.

    Examples:
        >>> torch.save({"weight": torch.ones(3)}, "model.pt")
        >>> conversion = tensorkeep.convert("model.pt", "converted")
        >>> tensorkeep.load("converted")["weight"]
        tensor([1., 1., 1.])
    """
    given = sources_of(source, "convert")
    if not given:
        raise UnsupportedError("there is nothing to convert", expected="at least one checkpoint")
    rewrite = RewriteOptions(
        select=select,
        drop=drop,
        rename=rename,
        strip_prefix=strip_prefix,
        dequantize=dequantize,
        cast=cast,
        seed=seed,
    )
    arrangement = Arrangement.of(align, order)
    target = target_of(os.fspath(destination), base_name, output_variant, max_shard_size)
    with ExitStack() as files:
        sources = Sources(
            given,
            variant,
            files,
            drop_unknown=drop_unknown,
            limits=limits,
            is_shared=share_views,
            engine=engine,
            dtypes=dtypes,
            dequantize=dequantize,
            keys=Keys.given(key),
            trust=trust,
        )
        refuse_loss = loss_guard(
            target.directory, target.stem, sources.opened, takes_all=rewrite.takes_all, overwrite=overwrite
        )
        content = content_of(sources, rewrite, metadata, share_views=share_views)
        refuse_loss()
        checks = SourceChecks(
            sources, content.wanted, content.new, content.nbytes, progress, is_wanted=check, executor=executor
        )
        checks.check_digests()
        wait_for_sums = files.enter_context(checks.summing())
        written: list[str] = []
        origins: dict[str, Origin] = {}
        if executor is not None and dequantize is None and not (drop_unknown or dtypes) and limits == DEFAULT_LIMITS:
            by_path = [(SourceToOpen.of(each, path, variant, engine), each) for path, each in sources.by_path]
            origins = origins_of(content.new, content.wanted, by_path, seed)

        def finish(staged: Mapping[str, str]) -> None:
            written.extend([split(path)[1] for path in staged.values()] or [target.single])
            refuse_loss(staged)
            sources.refuse_to_replace(join(target.directory, name) for name in written)
            wait_for_sums()
            checks.read_back(staged.values())
            refuse_replaced(sources.identities)

        options = SaveOptions(
            max_shard_nbytes=target.max_shard_nbytes,
            base_name=target.base,
            variant=target.variant,
            metadata=content.texts,
            sha256=sha256,
            align=arrangement.align,
            order=arrangement.order,
            durable=durable,
            progress=checks.part(),
            executor=executor,
            origins=origins,
            before_commit=finish,
            encryption=Encryption.of(encrypt),
        )
        if provenance:
            describe = provenance_of("convert", sources.opened, rewrite, options, target.directory)
            options = msgspec.structs.replace(options, describe=describe)
        write_checkpoint(content.prepared, target.directory, options)
        if not checks.is_read_back:  # a single file in a bucket appears at once
            checks.read_back([join(target.directory, target.single)])
    return Conversion(
        path=os.fspath(destination),
        sources=tuple(map(path_of, given)),
        index=target.index if sha256 or written != [target.single] else None,
        files=tuple(written),
        n_tensors=len(content.prepared.to_write),
        nbytes=content.nbytes,
        ties={name: alias.of for name, alias in content.prepared.aliases.items()},
        overlapped=() if share_views else content.ties.overlapped,
        composites=sources.composites,
        left_out=sources.left_out,
        has_tree=content.new.state is not None,
        n_values=sources.n_values,
        is_checked=check,
        n_summed=checks.n_summed,
        n_metadata=content.n_metadata,
    )
