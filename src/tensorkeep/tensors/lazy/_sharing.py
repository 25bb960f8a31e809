"""Read lazy tensors together; those that are stored in the same bytes share memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tensorkeep.arrays.sharing import shared_memory_for
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors.indexing import c_strides
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.lazy._together import load_together
from tensorkeep.tensors.readers import Layout, StridedReader, TensorReader
from tensorkeep.transport import ByteRange


class _Stored(msgspec.Struct, frozen=True):
    """A tensor that is a view of bytes of a source."""

    name: str
    reader: TensorReader
    dtype: DType
    shape: tuple[int, ...]
    layout: Layout
    stop: int

    @property
    def is_plain(self) -> bool:
        """Whether the bytes are a tensor as they are; others keep their strides only as views."""
        return self.layout.is_plain(self.dtype, self.shape)

    @property
    def is_swapped(self) -> bool:
        return self.dtype.bits > 8 and self.layout.is_big_endian == (sys.byteorder == "little")


def load_sharing(tensors: Mapping[str, LazyTensor], progress: Progress | None = None) -> dict[str, Any]:
    """Read whole tensors; each shares memory with those whose bytes overlap its own, and with no others."""
    stored = [found for name, lazy in tensors.items() if (found := _stored(name, lazy)) is not None]
    groups = [group for group in _overlapping(stored) if len(group) > 1 or not group[0].is_plain]
    grouped = {one.name for group in groups for one in group}
    same: dict[Any, str] = {}
    firsts = {
        name: name if name in grouped else same.setdefault((lazy.reader, lazy.entry), name)
        for name, lazy in tensors.items()
    }
    alone = {name: tensors[name] for name in same.values()}
    spans = [_span(group) for group in groups]
    total = sum(lazy.entry.nbytes for lazy in alone.values()) + sum(map(len, spans))
    meter = ProgressMeter.of(progress, total)
    loaded = load_together(alone, meter)
    for group, span in zip(groups, spans, strict=True):
        loaded |= _views(group, _read(group[0].reader, span), span.start)
        if meter is not None:
            meter.add(len(span))
    return {name: loaded[name] if first == name else loaded[first][...] for name, first in firsts.items()}


def _stored(name: str, lazy: LazyTensor) -> _Stored | None:
    """Say which bytes a tensor is a view of; None if it is read in another way, or has none."""
    reader, entry = lazy.reader, lazy.entry
    dtype = ALL_BY_NAME.get(entry.dtype)
    if dtype is None or dtype.is_packed or 0 in entry.shape:
        return None
    if isinstance(reader, StridedReader):
        layout, plain = reader.layout, reader.stored
    elif isinstance(reader, TensorReader):
        layout, plain = Layout(reader.span_of(entry).start, c_strides(entry.shape)), reader
    else:
        return None
    reach = 1 + sum((n - 1) * stride for n, stride in zip(entry.shape, layout.strides, strict=True))
    return _Stored(name, plain, dtype, entry.shape, layout, layout.start + dtype.nbytes(reach))


def _overlapping(stored: Sequence[_Stored]) -> Iterator[list[_Stored]]:
    """Group tensors whose bytes overlap, directly or through others."""
    group: list[_Stored] = []
    end = 0
    for one in sorted(stored, key=lambda one: (id(one.reader.source), one.layout.start)):
        if group and (one.reader.source is not group[0].reader.source or one.layout.start >= end):
            yield group
            group = []
        end = max(end, one.stop) if group else one.stop
        group.append(one)
    if group:
        yield group


def _span(group: Sequence[_Stored]) -> ByteRange:
    """Return the bytes of a group, from one at which an element of each of its dtypes may begin."""
    widest = max(group, key=lambda one: one.dtype.itemsize)
    first, width = min(one.layout.start for one in group), widest.dtype.itemsize
    n_before = -(-(widest.layout.start - first) // width)
    return ByteRange(widest.layout.start - n_before * width, max(one.stop for one in group))


def _views(group: Sequence[_Stored], data: Any, first: int) -> dict[str, Any]:
    """Make the tensors of a group of its bytes; `first` is the byte of the source at which they begin."""
    makers: dict[TensorReader, Any] = {}
    storages: dict[Any, Any] = {}
    views = {}
    for one in group:
        if one.reader not in makers:
            makers[one.reader] = shared_memory_for(one.reader.framework, one.reader.device)
        maker = makers[one.reader]
        size = one.dtype.itemsize // (2 if one.dtype.is_complex else 1) if one.is_swapped else 1
        if (one.reader, size) not in storages:
            storages[one.reader, size] = maker.storage(_swapped(data, size) if size > 1 else data)
        layout = one.layout
        views[one.name] = maker.view_of(
            storages[one.reader, size],
            one.dtype,
            (layout.start - first) // one.dtype.itemsize,
            one.shape,
            layout.strides,
            is_conj=layout.is_conj,
            is_neg=layout.is_neg,
        )
    return views


def _read(reader: TensorReader, span: ByteRange) -> Any:
    place = (span.start - reader.data_start, span.stop - reader.data_start)
    return reader.with_framework("numpy").load({"": TensorEntry("U8", (len(span),), place)})[""]


def _swapped(data: Any, size: int) -> Any:
    """Return the bytes with each number turned round."""
    whole = data[: len(data) // size * size]
    return whole.view(f"u{size}").byteswap().view("u1")
