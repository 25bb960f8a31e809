"""Load a nested value with its tensors; those that shared memory share it again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.arrays import codec_for, library_for
from tensorkeep.arrays.sharing import shared_memory_for
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError
from tensorkeep.formats.pickles import (
    ArrayRecord,
    CompositeRecord,
    DtypeRecord,
    Label,
    PickleDocument,
    StorageRecord,
    StorageView,
    TensorRecord,
)
from tensorkeep.kinds.pickles._flat import leaves_of
from tensorkeep.kinds.pickles._keys import joined
from tensorkeep.kinds.pickles._records import (
    LazyRecords,
    array_of,
    dtype_of,
    extent_of,
    has_gradients,
    is_tensor_like,
    tensor_of,
)
from tensorkeep.kinds.pickles._tree import Copy, copy_tree
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor, TensorReader, load_together
from tensorkeep.transport import ByteRange

_ALIGNMENT: Final = 64
"""The part of a storage that is read begins at a multiple of this, and so at a whole element of any dtype."""


class ValueToLoad(msgspec.Struct, frozen=True, eq=False):
    """The value of a file or a part of it, before it is loaded.

    Attributes:
        document: The file's pickle.
        reader: Reader of the file.
        value: The value, with records of tensors.
        needed: Key of each storage to the bytes that are read of it.
        arrays: NumPy arrays that become tensors of the framework, by the identities of their records.
    """

    document: PickleDocument
    reader: TensorReader
    value: Any
    needed: Mapping[str, ByteRange]
    arrays: Mapping[int, LazyTensor] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that are read."""
        return sum(map(len, self.needed.values())) + sum(array.nbytes for array in self.arrays.values())

    def load(self, meter: ProgressMeter | None) -> Any:
        """Return the value with tensors."""
        with PausedCollector():
            return copy_tree(self.value, Replacement(self.reader, _Memory(self, meter).tensor, self.arrays).make)


def whole_value(document: PickleDocument, reader: TensorReader, arrays: Mapping[int, LazyTensor]) -> ValueToLoad:
    """Return the value of a file, to be loaded."""
    spans = {key: ByteRange(0, len(span)) for key, span in document.spans.items()}
    return ValueToLoad(document, reader, document.value, spans, arrays)


def part_of_value(
    document: PickleDocument, reader: TensorReader, part: Any, arrays: Mapping[int, LazyTensor]
) -> ValueToLoad:
    """Return a part of the value of a file, to be loaded; of each storage, only what its tensors cover is read."""
    covered = {key: extent for key, extent in _covered(part).items() if key in document.spans}
    return ValueToLoad(document, reader, part, covered, arrays)


def arrays_as_tensors(value: Any, records: LazyRecords) -> dict[int, LazyTensor]:
    """Return the NumPy arrays of a value that can be tensors of any library, by the identities of their records."""
    leaves = leaves_of(value).tensors.items()
    return {
        id(leaf): records.lazy(name, leaf)
        for name, leaf in leaves
        if isinstance(leaf, ArrayRecord) and is_tensor_like(leaf)
    }


class Replacement:
    """What replaces the records of a value that is loaded.

    `filled` returns the tensor of a record that has a storage, or is of an array among `arrays`; other arrays are
    NumPy's.
    """

    def __init__(
        self, reader: TensorReader, filled: Callable[[TensorRecord | ArrayRecord], Any], arrays: Container[int]
    ) -> None:
        self._codec = codec_for(reader.framework)
        self._filled = filled
        self._arrays = arrays

    def make(self, record: Any, name: str, copy: Copy) -> Any:
        """Return what replaces a record in the loaded value."""
        kind = type(record)
        if kind is TensorRecord:
            return self._tensor(record)
        if kind in {StorageRecord, StorageView}:
            return self._tensor(tensor_of(record))
        if kind is CompositeRecord:
            return self._composed(record, name, copy)
        if kind is ArrayRecord:
            return self._filled(record) if id(record) in self._arrays else array_of(record)
        if kind is DtypeRecord:
            return dtype_of(record)
        found = self._codec.labelled(record.kind, str(record)) if kind is Label else None
        return record if found is None else found

    def _tensor(self, record: TensorRecord) -> Any:
        if record.storage is None:
            tensor = self._codec.without_data(ALL_BY_NAME[record.dtype], record.shape, record.strides)
            if tensor is None:
                return record
        else:
            tensor = self._filled(record)
        return self._codec.with_attributes(tensor, {"grad": True}) if has_gradients(record) else tensor

    def _composed(self, record: CompositeRecord, name: str, copy: Copy) -> Any:
        parts = {part: copy(tensor, joined(name, part)) for part, tensor in record.parts.items()}
        try:
            tensor = self._codec.composed(record.kind, parts, record.settings)
        except FormatError as error:
            raise error.with_fields(tensor=name) from None
        return CompositeRecord(record.kind, parts, copy(record.settings, name)) if tensor is None else tensor


class _Memory:
    """Builds tensors over storages, whose given bytes are read once; arrays have memory of their own."""

    def __init__(self, wanted: ValueToLoad, meter: ProgressMeter | None) -> None:
        document, reader = wanted.document, wanted.reader
        self._is_swapped = document.is_big_endian != (sys.byteorder == "big")
        self._memory = shared_memory_for(reader.framework, reader.device)
        is_for_device = not (self._is_swapped or reader.adapter.is_on_host)
        goes_to_device = is_for_device and library_for(reader.framework).can_share_memory
        self._bytes = _read_storages(wanted, reader if goes_to_device else reader.with_framework("numpy"), meter)
        self._needed = wanted.needed
        self._storages: dict[tuple[str, int], Any] = {}
        arrays = load_together({str(key): array for key, array in wanted.arrays.items()}, meter)
        self._arrays = dict(zip(wanted.arrays, arrays.values(), strict=True))

    def tensor(self, record: TensorRecord | ArrayRecord) -> Any:
        """Return a tensor over its storage, or the tensor of an array."""
        if isinstance(record, ArrayRecord):
            return self._arrays[id(record)]
        dtype, storage = ALL_BY_NAME[record.dtype], record.storage
        if storage is None:
            return None
        start = self._needed[storage.key].start if storage.key in self._needed else 0
        return self._memory.view_of(
            self._storage(storage, dtype),
            dtype,
            record.offset - start // dtype.itemsize,
            record.shape,
            record.strides,
            is_conj=record.is_conj,
            is_neg=record.is_neg,
        )

    def _storage(self, record: StorageRecord, dtype: DType) -> Any:
        width = dtype.itemsize // (2 if dtype.is_complex else 1) if self._is_swapped else 1
        place = (record.key, width)
        if place not in self._storages:
            data = self._bytes[record.key]
            if width > 1:
                data = data[: len(data) // width * width].view(f"u{width}").byteswap().view(np.uint8)
            self._storages[place] = self._memory.storage(data)
        return self._storages[place]


def _covered(part: Any) -> dict[str, ByteRange]:
    """Return the bytes of each storage that tensors cover."""
    covered: dict[str, ByteRange] = {}
    for leaf in leaves_of(part).tensors.values():
        if isinstance(leaf, ArrayRecord):
            continue
        record = tensor_of(leaf)
        key, extent = record.storage.key if record.storage else "", extent_of(record)
        start, stop = extent.start // _ALIGNMENT * _ALIGNMENT, extent.stop
        known = covered.get(key, ByteRange(start, stop))
        covered[key] = ByteRange(min(start, known.start), max(stop, known.stop))
    return covered


def _read_storages(wanted: ValueToLoad, reader: TensorReader, meter: ProgressMeter | None) -> dict[str, Any]:
    """Read ranges of storages as tensors of U8; embedded ones are there already, as NumPy's."""
    lazies = {}
    for key, part in wanted.needed.items():
        start = wanted.document.spans[key].start
        entry = TensorEntry("U8", (len(part),), (start + part.start, start + part.stop))
        lazies[key] = LazyTensor(key, entry, reader)
    embedded = {key: np.frombuffer(bytearray(data), np.uint8) for key, data in wanted.document.embedded.items()}
    return load_together(lazies, meter) | embedded
