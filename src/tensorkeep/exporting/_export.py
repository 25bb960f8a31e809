"""Write a checkpoint of any kind as a file of another format: streamed, read back, and complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from errno import EEXIST
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.checkpoint import Progress, RewriteOptions, find_damage, refuse_replaced, transform
from tensorkeep.conversion import Sources
from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.errors import DestinationExistsError, UnsupportedError
from tensorkeep.exporting._content import WatchedTensor, refuse_changed, watched
from tensorkeep.exporting._fit import refuse_names, refuse_shapes, refuse_unfit
from tensorkeep.exporting._format import Content, Plan
from tensorkeep.exporting._read_back import compare
from tensorkeep.exporting._registry import format_for
from tensorkeep.exporting._target import Target
from tensorkeep.formats.pickles import DEFAULT_LIMITS, PickleLimits
from tensorkeep.kinds import Opened, refuse
from tensorkeep.kinds.given import path_of, source_of
from tensorkeep.parallel import ProgressMeter
from tensorkeep.paths import source_path
from tensorkeep.tensors import LazyTensor, LazyTensors, Renaming, Selector
from tensorkeep.texts import listed

if TYPE_CHECKING:
    from tensorkeep.trust import Trust

_Path = str | os.PathLike[str]


class Export(msgspec.Struct, frozen=True):
    """The result of `export`: what was written, and what was left out.

    Attributes:
        path: The target, as it was given.
        source: The checkpoint that was read.
        format: Key of the format, such as `"npz"`.
        files: Names of the files that were written.
        n_tensors: Number of tensors in them.
        nbytes: Size of these tensors, in bytes.
        copied: Name to the first name of the same tensor, for tensors that share memory in the source and are now
            stored separately.
        left_out: Dotted name to the class or function of each object that is not known to be data.
        metadata_left_out: Keys of the source's metadata, if the format has no place for metadata.
        n_values_left_out: Number of plain values, such as numbers and text, beside the tensors.
        is_checked: Whether the source was compared with its checksums, and each tensor was read back and compared.
    """

    path: str
    source: str
    format: str
    files: tuple[str, ...]
    n_tensors: int
    nbytes: int
    copied: dict[str, str] = {}
    left_out: dict[str, str] = {}
    metadata_left_out: tuple[str, ...] = ()
    n_values_left_out: int = 0
    is_checked: bool = False


def export(
    source: _Path | LazyTensors,
    target: _Path,
    *,
    to: str | None = None,
    select: Selector | Iterable[Selector] | None = None,
    drop: Selector | Iterable[Selector] | None = None,
    rename: Renaming | None = None,
    strip_prefix: str | None = None,
    dequantize: Any = None,
    cast: Any = None,
    variant: str | None = None,
    drop_unknown: bool = False,
    overwrite: bool = False,
    durable: bool = True,
    check: bool = True,
    limits: PickleLimits = DEFAULT_LIMITS,
    engine: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    trust: Trust | None = None,
) -> Export:
    """Write a checkpoint of any kind as a file of another format, complete or not at all, without running any of it.

    Tensors are streamed from file to file and are never all in memory. Before the new files appear, the reader of
    their format opens them and every tensor is compared with the source.

    Args:
        source: A file, an index or a directory that `tensorkeep.open` opens; or an open checkpoint or a view, whose
            tensors are computed while they are written. What is open stays open.
        target: The file to write, or its URL in a bucket or in a store of fsspec; for a URL, it is written to a
            temporary directory first. Formats of several files put the others beside it.
        to: The format, such as `"npz"`; None goes by the suffix of the target.
        select: Tensors to export: shell patterns for whole names, or predicates on a name; all if None.
        drop: Tensors to leave out of the selection.
        rename: Old name to new name, or a function that returns the new name of each tensor.
        strip_prefix: Prefix to remove from names after renaming.
        dequantize: Dtype in which to write the numbers of quantized tensors, such as `"bf16"`; None keeps their
            blocks.
        cast: Dtype to which floating-point tensors are converted, such as `"f32"`, or an encoding that the format
            has of its own.
        variant: Which checkpoint of a source directory to export, such as `"fp16"`.
        drop_unknown: Whether to export files with objects that are not known to be data, or with names that could
            only do harm; otherwise they are refused.
        overwrite: Whether to replace files that exist. Otherwise they are refused.
        durable: Whether to wait until everything is on disk (fsync).
        check: Whether to compare the source with its checksums, and each written tensor with the source, before
            anything is replaced.
        limits: Bounds on what the pickle of each file may cost.
        engine: The library that reads the source instead of tensorkeep; see `open`.
        dtypes: Dtypes that the file does not say, by name or shell pattern; see `open`.
        progress: Called with the bytes checked and written so far and the total, by one thread at a time. If it
            raises, the work stops and nothing has changed.
        key: The key of an encrypted source; see `open`. The new files are plain.
        trust: Whose signatures count; see `open`. Then only what they signed is read.

    Returns:
        What was written, and what was left out.

    Raises:
        UnsupportedError: If the format is unknown, the target is the source or a URL that cannot be written to, or
            there are no tensors.
        DtypeError: If the format cannot hold the dtypes of some tensors, `cast` is not a known dtype, or one of
            `dtypes` is not or has elements of another size.
        RefusedError: If the format cannot hold some names, or two tensors would have the same name.
        LimitError: If the format cannot hold so many tensors or dimensions, or a source exceeds a bound.
        DestinationExistsError: If a file exists, and `overwrite` is false.
        SourceMissingError: If there is no checkpoint, or the directory of the target is missing.
        EncryptedError: If the source is encrypted, and the key is missing or another one.
        UnsafeError: If a pickle holds objects that are not known to be data, and `drop_unknown` is false.
        IntegrityError: If the source does not match its checksums, or written bytes differ from the source.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        SourceChangedError: If the source changed meanwhile.
        FormatError: If the source is malformed.
        TensorNotFoundError: If `select` or `drop` matches nothing, `dtypes` names another tensor, no tensor
            is left, or no tensor has a name to rename or the prefix to strip.
        BusyError: If another process is writing the same target.
        TransportError: If the source cannot be read, or the target cannot be written.
        TypeError: If the target is not a path, or the source is neither a path nor open.

    Examples:
        >>> tensorkeep.export("my-model", "my-model.npz").n_tensors
        39
    """
    given = source_of(source, "export")
    path = path_of(given)
    destination = Target(source_path(target, "export"))
    form = format_for(destination.name, to)
    encoding = cast.lower() if isinstance(cast, str) and cast.lower() in form.encodings else None
    rewrite = RewriteOptions(
        select=select,
        drop=drop,
        rename=rename,
        strip_prefix=strip_prefix,
        dequantize=dequantize,
        cast=None if encoding else cast,
    )
    with ExitStack() as files:
        sources = Sources(
            [given],
            variant,
            files,
            drop_unknown=drop_unknown,
            limits=limits,
            is_shared=False,
            engine=engine,
            dtypes=dtypes,
            dequantize=dequantize,
            keys=Keys.given(key),
            trust=trust,
        )
        wanted = sources.wanted(rewrite, with_tree=False)
        new = transform(wanted, rewrite)
        refuse_unfit(form, {name: lazy.dtype for name, lazy in new.items()}, path)
        ties = _ties(sources, wanted, new)
        metadata = {key: text for key, text in new.metadata.items() if key not in {"format", *ties}}
        sources.refuse_expanded(set(wanted))
        tensors = {name: watched(lazy) for name, lazy in new.items()}
        refuse_shapes(form, tensors, path)
        refuse_names(form, tensors, path)
        content = Content(tensors, metadata, ties, encoding, destination.names())
        plan = form.plan(content, destination.name)
        job = _Job(destination, plan, tensors, overwrite=overwrite, durable=durable, check=check)
        job.refuse_to_replace(sources)
        job.run(sources, wanted, progress)
        return Export(
            path=destination.path,
            source=path,
            format=form.key,
            files=tuple(file.name for file in plan.files),
            n_tensors=len(tensors),
            nbytes=sum(tensor.nbytes for tensor in tensors.values()),
            copied=ties,
            left_out=sources.left_out,
            metadata_left_out=() if form.holds_metadata else tuple(metadata),
            n_values_left_out=_n_values(sources.opened[0]),
            is_checked=check,
        )


def _ties(sources: Sources, wanted: LazyTensors, new: LazyTensors) -> dict[str, str]:
    """Return the new name of each tensor that is another one too, and the first name of that."""
    names = dict(zip(wanted, new, strict=True))
    of_views = sources.ties(wanted, new, ()).aliases
    stored = sources.opened[0].aliases.items()
    return of_views | {
        names[old]: names[alias.of] for old, alias in stored if alias.is_whole and old in names and alias.of in names
    }


def _n_values(source: Opened) -> int:
    """Count what the saved value holds besides tensors and containers."""
    count = 0
    rest = [source.tree] if source.has_tree else []
    seen: set[int] = set()
    while rest:
        value = rest.pop()
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if id(value) not in seen:
                seen.add(id(value))
                rest += value.values() if isinstance(value, Mapping) else value
        elif not isinstance(value, LazyTensor):
            count += 1
    return count


class _Job:
    """The writing of one export."""

    def __init__(
        self,
        target: Target,
        plan: Plan,
        tensors: dict[str, WatchedTensor],
        *,
        overwrite: bool,
        durable: bool,
        check: bool,
    ) -> None:
        self._target = target
        self._plan = plan
        self._tensors = tensors
        self._overwrite = overwrite
        self._durable = durable
        self._check = check

    def refuse_to_replace(self, sources: Sources) -> None:
        """Refuse to write over the source, and over other files that the caller did not give up."""
        own = {os.path.realpath(path) for path in sources.identities}
        read = {file.name for file in sources.opened[0].sources.values()}
        names = [*(file.name for file in self._plan.files), *sorted(self._plan.replaced)]
        for place in map(self._target.place_of, names):
            if place in read or os.path.realpath(place) in own:
                raise UnsupportedError(
                    "the target is the source, which is read while it is written", path=place, expected="another file"
                )
        existing = [self._target.place_of(name) for name in names if self._target.is_taken(name)]
        if existing and not self._overwrite:
            raise DestinationExistsError(
                "the file exists" if len(existing) == 1 else "the files exist",
                path=existing[0],
                found=listed(existing) if len(existing) > 1 else None,
                hint="Choose another; overwrite=True (--force) replaces it",
            ).numbered(EEXIST)

    def run(self, sources: Sources, wanted: LazyTensors, progress: Progress | None) -> None:
        """Check the source, write all files, compare them with it, and publish them."""
        source = sources.opened[0]
        checks = (
            source.checks([name for name in sources.stored_names(wanted) if name in source]).checks
            if self._check
            else []
        )
        nbytes = sum(tensor.nbytes for tensor in self._tensors.values())
        n_checked = sum(len(check.span) for check in checks)
        n_passes = 1 + self._check + self._target.is_sent
        meter = ProgressMeter(progress, n_checked + nbytes * n_passes)
        refuse(find_damage(list(checks), meter), source.path)
        names = [file.name for file in self._plan.files]
        with self._target.staged(durable=self._durable) as staged:
            for file in self._plan.files:
                with staged.file(file.name, on_written=meter.counting()) as sink:
                    file.write(sink)
            if self._check:
                refuse_changed(self._tensors.values())
                compare(staged.path_of(self._plan.opened or names[-1]), self._tensors, self._plan, meter.add)
            refuse_replaced(sources.identities)
            self.refuse_to_replace(sources)
            staged.publish(names, sorted(self._plan.replaced), meter.counting)
