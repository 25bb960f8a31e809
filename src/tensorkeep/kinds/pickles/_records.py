"""Records of a pickle as lazy tensors and NumPy arrays, and where their tensors are stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np

from tensorkeep.arrays import Extent
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, BY_NUMPY
from tensorkeep.entries import TensorEntry
from tensorkeep.formats.pickles import (
    ArrayRecord,
    CompositeRecord,
    DtypeRecord,
    Payload,
    PickleDocument,
    StorageRecord,
    StorageView,
    TensorRecord,
)
from tensorkeep.kinds.base import StoredView
from tensorkeep.kinds.pickles._keys import joined
from tensorkeep.kinds.pickles._tree import Copy
from tensorkeep.tensors import Layout, LazyTensor, StridedReader, TensorReader
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource, MemorySource

_REAL_OF = {"C32": "F16", "C64": "F32", "C128": "F64"}
"""Complex dtype to the dtype of its real and imaginary parts."""

_BYTE_ORDERS = "<>|="
"""First characters of NumPy's own dtype strings; others are names in ml_dtypes."""


class LazyRecords:
    """Turns the records of one document into lazy tensors.

    Attributes:
        reader: Reader of the file.
    """

    def __init__(self, document: PickleDocument, source: ByteSource, framework: str, device: Any) -> None:
        self._document = document
        self._target = (framework, device)
        self._embedded: dict[str, TensorReader] = {}
        self.reader = TensorReader(source, 0, framework, device)

    def lazy(self, name: str, record: TensorRecord | StorageRecord | StorageView | ArrayRecord) -> LazyTensor:
        if isinstance(record, ArrayRecord):
            return self._lazy_array(name, record)
        tensor = tensor_of(record)
        return lazy_record(name, tensor, self._document, self._reader_of(tensor))

    def value(self, record: Any, name: str, copy: Copy) -> Any:
        """Return what replaces a record in a tree of lazy tensors."""
        kind = type(record)
        if kind is ArrayRecord:
            return array_of(record)
        if kind is DtypeRecord:
            return dtype_of(record)
        if kind is CompositeRecord:
            parts = {part: copy(tensor, joined(name, part)) for part, tensor in record.parts.items()}
            return CompositeRecord(record.kind, parts, copy(record.settings, name))
        if kind in {StorageRecord, StorageView} or (kind is TensorRecord and record.storage is not None):
            lazy = self.lazy(name, record)
            return lazy.marked(None, {"grad": True}) if has_gradients(record) else lazy
        return record

    def unread(self, record: Any, name: str, copy: Copy) -> Any:
        """Return the same, with lazy tensors in place of arrays, so that no elements are read."""
        is_array = type(record) is ArrayRecord and is_tensor_like(record)
        return self.lazy(name, record) if is_array else self.value(record, name, copy)

    def pairs(self, name: str, record: TensorRecord) -> LazyTensor:
        """Return a complex tensor as a real one: a last dimension of 2 holds the real and imaginary parts."""
        real = msgspec.structs.replace(
            record,
            dtype=_REAL_OF[record.dtype],
            offset=2 * record.offset,
            shape=(*record.shape, 2),
            strides=(*(2 * stride for stride in record.strides), 1),
            is_conj=False,
            is_neg=False,
        )
        lazy = self.lazy(name, real)
        if not (record.is_conj or record.is_neg):
            return lazy
        pairs = np.array(lazy)
        if record.is_conj:
            np.negative(pairs[..., 1], out=pairs[..., 1])
        if record.is_neg:
            np.negative(pairs, out=pairs)
        return lazy_array(name, pairs, self.reader.source.name)

    def _reader_of(self, tensor: TensorRecord) -> TensorReader:
        key = tensor.storage.key if tensor.storage else ""
        if key in self._document.embedded and key not in self._embedded:
            self._embedded[key] = self._reader_over(self._document.embedded[key])
        return self._embedded.get(key, self.reader)

    def _reader_over(self, data: Buffer) -> TensorReader:
        return TensorReader(MemorySource(data, name=self.reader.source.name), 0, *self._target)

    def _lazy_array(self, name: str, record: ArrayRecord) -> LazyTensor:
        """Return a lazy tensor over the elements in the pickle itself."""
        text = record.dtype.text
        dtype = _row_of(text)
        reader, start = self._reader_of_elements(record)
        nbytes = len(record.data)
        is_big_endian = text.startswith(">")
        is_plain = not (is_big_endian or record.is_fortran)
        layout = None if is_plain else Layout(start, strides_of(record), is_big_endian=is_big_endian)
        if layout is None or layout.is_plain(dtype, record.shape):
            return LazyTensor(name, TensorEntry(dtype.name, record.shape, (start, start + nbytes)), reader)
        return LazyTensor(name, TensorEntry(dtype.name, record.shape, (0, nbytes)), StridedReader(reader, layout))

    @cached_property
    def _is_mapped(self) -> bool:
        """Whether the file can be mapped, so that small arrays are read together from there, too."""
        return self.reader.source.map(ByteRange(0, 1)) is not None

    def _reader_of_elements(self, record: ArrayRecord) -> tuple[TensorReader, int]:
        """Return a reader of an array's elements, and the byte at which they begin there."""
        data: Any = record.data
        if type(data) is not Payload:
            _, place = self._document.places.get(id(data), (None, None))
            if place is None or not self._is_mapped:
                return self._reader_over(data), 0
            return self.reader, place
        (_, span), *others = data.parts
        if not others:
            return self.reader, span.start
        return TensorReader(JoinedSource(data.parts, self.reader.source.name), 0, *self._target), 0


def lazy_record(name: str, tensor: TensorRecord, document: PickleDocument, reader: TensorReader) -> LazyTensor:
    """Return a lazy tensor for a record."""
    dtype = ALL_BY_NAME[tensor.dtype]
    layout = layout_of(tensor, document)
    nbytes = dtype.nbytes(prod(tensor.shape))
    if layout.is_plain(dtype, tensor.shape):
        entry = TensorEntry(dtype.name, tensor.shape, (layout.start, layout.start + nbytes))
        return LazyTensor(name, entry, reader)
    return LazyTensor(name, TensorEntry(dtype.name, tensor.shape, (0, nbytes)), StridedReader(reader, layout))


def lazy_array(name: str, array: Any, path: str) -> LazyTensor:
    """Return a lazy tensor over an array in memory."""
    entry = TensorEntry(BY_NUMPY[array.dtype.name].name, array.shape, (0, array.nbytes))
    return LazyTensor(name, entry, TensorReader(MemorySource(array.tobytes(), name=path), 0, "numpy"))


def strides_of(record: ArrayRecord) -> tuple[int, ...]:
    """Return the strides of an array, in elements."""
    shape = record.shape[::-1] if record.is_fortran else record.shape
    strides = tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
    return strides[::-1] if record.is_fortran else strides


def layout_of(record: TensorRecord, document: PickleDocument) -> Layout:
    """Return the layout of a tensor in the file, or in a storage that is embedded in the pickle."""
    storage: Any = record.storage
    start = 0 if storage.key in document.embedded else document.spans[storage.key].start
    start += ALL_BY_NAME[record.dtype].nbytes(record.offset)
    return Layout(start, record.strides, document.is_big_endian, record.is_conj, record.is_neg)


def tensor_of(storage: TensorRecord | StorageRecord | StorageView) -> TensorRecord:
    """Return the record as a tensor; a storage becomes a one-dimensional tensor."""
    if isinstance(storage, TensorRecord):
        return storage
    if isinstance(storage, StorageView):
        root = storage.storage
        return TensorRecord(root, root.dtype, storage.offset, (storage.n_elements,), (1,))
    return TensorRecord(storage, storage.dtype, 0, (storage.n_elements,), (1,))


def has_gradients(record: TensorRecord | StorageRecord | StorageView) -> bool:
    """Whether a tensor requires gradients and can have them."""
    if not isinstance(record, TensorRecord) or not record.requires_grad:
        return False
    dtype = ALL_BY_NAME[record.dtype]
    return dtype.is_float or dtype.is_complex


def is_tensor_like(record: Any) -> bool:
    """Whether a record can be a lazy tensor: arrays only if tensors have their dtype in the same encoding."""
    return type(record) is not ArrayRecord or (not record.is_scalar and _dtype_name(record) is not None)


def _dtype_name(record: ArrayRecord) -> str | None:
    dtype = record.dtype
    if record.holds_objects or dtype.base is not None or dtype.fields:
        return None
    row = _row_of(dtype.text)
    return row.name if row and not row.is_packed else None  # NumPy does not pack elements into bytes


@lru_cache(1024)
def _row_of(text: str) -> Any:
    """Return the row of the dtype table for a dtype without fields; None if tensors do not have it."""
    return BY_NUMPY.get(dtype_of(DtypeRecord(text)).name)


def dtype_of(record: ArrayRecord | DtypeRecord) -> np.dtype[Any]:
    """Return the NumPy dtype of a record."""
    dtype = record.dtype if isinstance(record, ArrayRecord) else record
    if dtype.base is not None:
        return np.dtype((dtype_of(dtype.base[0]), dtype.base[1]))
    if dtype.fields:
        names, formats, offsets = zip(
            *((name, dtype_of(field), offset) for name, field, offset in dtype.fields), strict=True
        )
        itemsize = int(dtype.text.lstrip("|V"))
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})
    return np.dtype(dtype.text) if dtype.text[0] in _BYTE_ORDERS else _dtypes_of_ml_dtypes()[dtype.text]


@cache
def _dtypes_of_ml_dtypes() -> dict[str, np.dtype[Any]]:
    import ml_dtypes  # 10 ms, and only the narrow floats need it

    return {name: np.dtype(kind) for name, kind in vars(ml_dtypes).items() if isinstance(kind, type)}


def array_of(record: ArrayRecord) -> Any:
    """Return a NumPy array or scalar that owns its memory."""
    stored: Any = record.data
    data = np.empty(len(stored), np.uint8)
    if type(stored) is Payload:
        JoinedSource(stored.parts, "").read_into([(0, data.data)])
    else:
        data.data[:] = stored
    array: Any = np.ndarray(record.shape, dtype_of(record), data, order=_order_of(record))
    return array[()] if record.is_scalar else array


def _order_of(record: ArrayRecord) -> Literal["C", "F"]:
    return "F" if record.is_fortran else "C"


def stored_views(
    path: str, document: PickleDocument, tensors: Mapping[str, TensorRecord], records: Mapping[str, Any]
) -> dict[str, StoredView]:
    """Return where each tensor is stored; NumPy arrays are embedded in the pickle and overlap nothing."""
    views = {name: _view(path, document, tensor) for name, tensor in tensors.items() if prod(tensor.shape)}
    return views | {name: StoredView(id(record)) for name, record in records.items() if name not in tensors}


def _view(path: str, document: PickleDocument, tensor: TensorRecord) -> StoredView:
    steps = [(extent, stride) for extent, stride in zip(tensor.shape, tensor.strides, strict=True) if extent > 1]
    covered = extent_of(tensor)
    key = tensor.storage.key if tensor.storage else ""
    span = document.spans.get(key)  # several archives in one file may have storages with the same key
    storage = f"{path}:{key}:{id(document) if span is None else span.start}"
    changes = (tensor.is_conj, tensor.is_neg)
    identity = (storage, tensor.dtype, covered.start, tensor.shape, *steps, changes)
    return StoredView(identity, Extent(storage, covered.start, covered.stop))


def extent_of(tensor: TensorRecord) -> ByteRange:
    """Return the bytes of its storage that a tensor covers."""
    dtype = ALL_BY_NAME[tensor.dtype]
    first = dtype.nbytes(tensor.offset)
    if 0 in tensor.shape:
        return ByteRange(first, first)
    steps = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
    return ByteRange(first, first + dtype.nbytes(1 + steps))
