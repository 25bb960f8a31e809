"""Load whole tensors so that those that shared memory share it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tensorkeep.arrays import SharedMemory, device_for
from tensorkeep.arrays.elements import known_dtype
from tensorkeep.arrays.sharing import shared_memory_for
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError, SharedMemoryError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.kinds.base import LoadOptions
from tensorkeep.limits import MAX_COPIES, MAX_EXPANDED_NBYTES
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor, Reader, TensorReader, c_strides, load_together
from tensorkeep.transport import ByteRange

_ALIGNMENT: Final = 64
"""The part of an owner that is read begins at a multiple of this, and so at a whole element of any dtype."""


def load_tied(
    wanted: Mapping[str, LazyTensor],
    frameworks: Mapping[str, str],
    aliases: Mapping[str, Alias],
    stored: Callable[[str], LazyTensor],
    options: LoadOptions,
    *,
    is_part: bool = False,
) -> dict[str, Any]:
    """Read whole tensors, which share memory as `ties` says; for a part of one, only the memory that it needs."""
    ties, device = options.ties, options.device
    if ties == "copy":
        refuse_copies(wanted, aliases, stored)
    groups = _groups(wanted, aliases) if ties != "copy" else {}
    if groups and ties == "error":
        owner, names = next(iter(groups.items()))
        raise SharedMemoryError(
            "tensors share memory",
            tensor=names[0],
            found=f"{', '.join(f'`{name}`' for name in names)}: the memory of `{owner}`",
            hint='Pass ties="share" to share it again, or ties="copy" to give each tensor its own',
        )
    tied = {name for names in groups.values() for name in names}
    readers: dict[tuple[Reader, str], Reader] = {}
    alone: dict[str, LazyTensor] = {}
    with PausedCollector():
        for name, lazy in wanted.items():
            if name not in tied:
                framework = frameworks[name]
                reader = readers.get((lazy.reader, framework))
                if reader is None:
                    reader = lazy.reader.with_framework(framework, device_for(framework, device))
                    readers[lazy.reader, framework] = reader
                alone[name] = LazyTensor(name, lazy.entry, reader)
    owners = {owner: stored(owner) for owner in groups}
    spans = {
        owner: _covered(owners[owner], names, aliases) if is_part else ByteRange(0, owners[owner].nbytes)
        for owner, names in groups.items()
    }
    total = sum(lazy.entry.nbytes for lazy in alone.values()) + sum(map(len, spans.values()))
    meter = ProgressMeter.of(options.progress, total)
    loaded = load_together(alone, meter)
    memory = _load_bytes(owners, spans, meter)
    makers = {
        framework: shared_memory_for(framework, device_for(framework, device))
        for framework in {frameworks[name] for names in groups.values() for name in names}
    }
    for owner, names in groups.items():
        storages: dict[str, Any] = {}
        for name in names:
            framework = frameworks[name]
            if framework not in storages:
                storages[framework] = makers[framework].storage(memory[owner])
            alias = aliases.get(name) or Alias(owner)
            view = _view(makers[framework], storages[framework], alias, owners[owner].entry, spans[owner].start)
            loaded[name] = view
    return {name: loaded[name] for name in wanted}


def refuse_copies(
    wanted: Mapping[str, LazyTensor], aliases: Mapping[str, Alias], stored: Callable[[str], LazyTensor]
) -> None:
    """Refuse to copy very many views: a small file can declare a thousand views of one tensor."""
    views = [name for name in wanted if name in aliases]
    nbytes = sum(wanted[name].nbytes for name in views)
    if nbytes > MAX_EXPANDED_NBYTES:
        limit = MAX_COPIES * sum(stored(owner).nbytes for owner in {aliases[name].of for name in views})
        if nbytes > max(limit, MAX_EXPANDED_NBYTES):
            raise LimitError(
                "tensors that share memory are too large to be copied one by one",
                tensor=views[0],
                expected=f"at most {max(limit, MAX_EXPANDED_NBYTES):,} bytes",
                found=f"{nbytes:,} bytes in {len(views):,} tensors",
                hint="Load them with shared memory, or a few at a time",
            )


def _groups(wanted: Mapping[str, LazyTensor], aliases: Mapping[str, Alias]) -> dict[str, list[str]]:
    """Map each stored name to the wanted names that share its memory, if there is any view among them."""
    groups: dict[str, list[str]] = {}
    for name in wanted:
        if name in aliases:
            groups.setdefault(aliases[name].of, []).append(name)
    for owner, names in groups.items():
        if owner in wanted:
            names.insert(0, owner)
    return groups


def _covered(owner: LazyTensor, names: Sequence[str], aliases: Mapping[str, Alias]) -> ByteRange:
    """Return the bytes of an owner that the chosen views need; all of them if it is wanted or verified whole."""
    entry, reader = owner.entry, owner.reader
    is_plain = isinstance(reader, TensorReader) and not reader.is_checked
    if not is_plain or any(name not in aliases or aliases[name].is_whole for name in names):
        return ByteRange(0, entry.nbytes)
    starts, stops = zip(*(_extent(aliases[name], entry) for name in names), strict=True)
    start = min(starts) // _ALIGNMENT * _ALIGNMENT
    return ByteRange(start, max(start, *stops))


def _extent(alias: Alias, entry: TensorEntry) -> tuple[int, int]:
    """Return the first byte of a view in its owner, and the one after its last."""
    dtype, shape, strides = _layout(alias, entry)
    if not all(shape):
        return alias.offset, alias.offset
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return alias.offset, alias.offset + -(-(last + 1) * dtype.bits // 8)


def _layout(alias: Alias, entry: TensorEntry) -> tuple[DType, tuple[int, ...], tuple[int, ...]]:
    dtype = ALL_BY_NAME.get(alias.dtype or entry.dtype) or known_dtype(alias.of, entry)
    shape = entry.shape if alias.shape is None else alias.shape
    return dtype, shape, c_strides(shape) if alias.strides is None else alias.strides


def _view(maker: SharedMemory, storage: Any, alias: Alias, entry: TensorEntry, start: int) -> Any:
    """Make a tensor over memory that begins at a byte of the owner; its range was checked when the alias was read."""
    dtype, shape, strides = _layout(alias, entry)
    offset = (alias.offset - start) * 8 // dtype.bits
    return maker.view_of(storage, dtype, offset, shape, strides, is_conj=alias.is_conj, is_neg=alias.is_neg)


def _load_bytes(
    owners: Mapping[str, LazyTensor], spans: Mapping[str, ByteRange], meter: ProgressMeter | None
) -> dict[str, Any]:
    """Read ranges of tensors of any dtype as bytes."""
    readers: dict[Reader, Reader] = {}
    lazies: dict[str, LazyTensor] = {}
    for name, owner in owners.items():
        reader = readers.setdefault(owner.reader, owner.reader.with_framework("numpy"))
        span, first = spans[name], owner.entry.data_offsets[0]
        entry = TensorEntry("U8", (len(span),), (first + span.start, first + span.stop))
        lazies[name] = LazyTensor(name, entry, reader)
    return load_together(lazies, meter)
