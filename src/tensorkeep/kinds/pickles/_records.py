"""Records of a pickle as lazy tensors, and as arrays of NumPy."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np

from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, BY_NUMPY
from tensorkeep.entries import TensorEntry
from tensorkeep.formats.pickles import (
    ArrayRecord,
    DtypeRecord,
    PickleDocument,
    StorageRecord,
    StorageView,
    TensorRecord,
)
from tensorkeep.tensors import Layout, LazyTensor, StridedReader, TensorReader
from tensorkeep.transport import ByteSource, MemorySource

_REAL_OF = {"C32": "F16", "C64": "F32", "C128": "F64"}
"""Dtype of complex numbers to that of their parts."""

_BYTE_ORDERS = "<>|="
"""What the text of a dtype begins with that is NumPy's own."""


class LazyRecords:
    """Makes lazy tensors of the records of one document.

    Attributes:
        reader: Reads the file.
    """

    def __init__(self, document: PickleDocument, source: ByteSource, framework: str, device: Any) -> None:
        self._document = document
        self._target = (framework, device)
        self.reader = TensorReader(source, 0, framework, device)

    def lazy(self, name: str, record: TensorRecord | StorageRecord | StorageView | ArrayRecord) -> LazyTensor:
        """Return a tensor that reads on indexing."""
        if isinstance(record, ArrayRecord):
            return self._lazy_array(name, record)
        tensor = tensor_of(record)
        return lazy_record(name, tensor, self._document, self._reader_of(tensor))

    def pairs(self, name: str, record: TensorRecord) -> LazyTensor:
        """Return a tensor of complex numbers as one of real numbers, with the two of each in one dimension more."""
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
        data = self._document.embedded.get(tensor.storage.key) if tensor.storage else None
        return self.reader if data is None else self._reader_over(data)

    def _reader_over(self, data: Buffer) -> TensorReader:
        return TensorReader(MemorySource(data, name=self.reader.source.name), 0, *self._target)

    def _lazy_array(self, name: str, record: ArrayRecord) -> LazyTensor:
        """Read the elements where they are; NumPy's own strides say how they lie."""
        stored = dtype_of(record)
        dtype = BY_NUMPY[stored.newbyteorder("=").name]
        data: Any = record.data
        layout = Layout(0, strides_of(record), is_big_endian=stored.str.startswith(">"))
        entry = TensorEntry(dtype.name, record.shape, (0, dtype.nbytes(prod(record.shape))))
        reader = self._reader_over(data)
        return LazyTensor(
            name, entry, reader if layout.is_plain(dtype, record.shape) else StridedReader(reader, layout)
        )


def lazy_record(name: str, tensor: TensorRecord, document: PickleDocument, reader: TensorReader) -> LazyTensor:
    """Return a tensor that reads on indexing."""
    dtype = ALL_BY_NAME[tensor.dtype]
    layout = layout_of(tensor, document)
    nbytes = dtype.nbytes(prod(tensor.shape))
    if layout.is_plain(dtype, tensor.shape):
        entry = TensorEntry(dtype.name, tensor.shape, (layout.start, layout.start + nbytes))
        return LazyTensor(name, entry, reader)
    return LazyTensor(name, TensorEntry(dtype.name, tensor.shape, (0, nbytes)), StridedReader(reader, layout))


def lazy_array(name: str, array: Any, path: str) -> LazyTensor:
    """Return an array in memory as a lazy tensor."""
    entry = TensorEntry(BY_NUMPY[array.dtype.name].name, array.shape, (0, array.nbytes))
    return LazyTensor(name, entry, TensorReader(MemorySource(array.tobytes(), name=path), 0, "numpy"))


def strides_of(record: ArrayRecord) -> tuple[int, ...]:
    """Return how the elements of an array lie in it: elements from one entry of each dimension to the next."""
    shape = record.shape[::-1] if record.is_fortran else record.shape
    strides = tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
    return strides[::-1] if record.is_fortran else strides


def layout_of(record: TensorRecord, document: PickleDocument) -> Layout:
    """Return how a tensor's elements lie in the file, or in the bytes of a storage that stands in the pickle."""
    storage: Any = record.storage
    start = 0 if storage.key in document.embedded else document.spans[storage.key].start
    start += ALL_BY_NAME[record.dtype].nbytes(record.offset)
    return Layout(start, record.strides, document.is_big_endian, record.is_conj, record.is_neg)


def tensor_of(storage: TensorRecord | StorageRecord | StorageView) -> TensorRecord:
    """Return a tensor itself; of a storage, the tensor of one dimension that is all of it."""
    if isinstance(storage, TensorRecord):
        return storage
    if isinstance(storage, StorageView):
        root = storage.storage
        return TensorRecord(root, root.dtype, storage.offset, (storage.n_elements,), (1,))
    return TensorRecord(storage, storage.dtype, 0, (storage.n_elements,), (1,))


def is_tensor_like(record: Any) -> bool:
    """Say whether a record can be a lazy tensor: arrays only of dtypes that tensors have, in the same form."""
    return type(record) is not ArrayRecord or (not record.is_scalar and _dtype_name(record) is not None)


def _dtype_name(record: ArrayRecord) -> str | None:
    if record.holds_objects:
        return None
    row = BY_NUMPY.get(dtype_of(record).name)
    return row.name if row and not row.is_packed else None  # NumPy gives each element a byte


def dtype_of(record: ArrayRecord | DtypeRecord) -> np.dtype[Any]:
    """Return the NumPy dtype of an array, or the one that a record stands for."""
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
    """Return an array of NumPy, or one of its numbers, that owns its memory."""
    array: Any = np.ndarray(record.shape, dtype_of(record), bytearray(record.data), order=_order_of(record))
    return array[()] if record.is_scalar else array


def _order_of(record: ArrayRecord) -> Literal["C", "F"]:
    return "F" if record.is_fortran else "C"
