"""Load a nested value with its tensors; those that shared memory share it again."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import codec_for
from tensorkeep.arrays.sharing import shared_memory_for
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
from tensorkeep.kinds.pickles._keys import joined
from tensorkeep.kinds.pickles._records import array_of, dtype_of, tensor_of
from tensorkeep.kinds.pickles._tree import Copy, copy_tree
from tensorkeep.tensors import TensorReader


def load_tree(document: PickleDocument, reader: TensorReader) -> Any:
    """Load the value of a file."""
    return copy_tree(document.value, _Loader(document, reader).make)


class _Loader:
    """Builds tensors over storages. Each storage is read once."""

    def __init__(self, document: PickleDocument, reader: TensorReader) -> None:
        self._is_swapped = document.is_big_endian != (sys.byteorder == "big")
        self._memory = shared_memory_for(reader.framework, reader.device)
        self._codec = codec_for(reader.framework)
        self._bytes = _read_storages(document, reader.with_framework("numpy"))
        self._storages: dict[tuple[str, int], Any] = {}

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
            return array_of(record)
        if kind is DtypeRecord:
            return dtype_of(record)
        found = self._codec.labelled(record.kind, str(record)) if kind is Label else None
        return record if found is None else found

    def _tensor(self, record: TensorRecord) -> Any:
        dtype = ALL_BY_NAME[record.dtype]
        if record.storage is None:
            tensor = self._codec.without_data(dtype, record.shape, record.strides)
            if tensor is None:
                return record
        else:
            storage = self._storage(record.storage, dtype)
            tensor = self._memory.view_of(
                storage,
                dtype,
                record.offset,
                record.shape,
                record.strides,
                is_conj=record.is_conj,
                is_neg=record.is_neg,
            )
        has_gradients = record.requires_grad and (dtype.is_float or dtype.is_complex)
        return self._codec.with_attributes(tensor, {"grad": True}) if has_gradients else tensor

    def _storage(self, record: StorageRecord, dtype: DType) -> Any:
        width = dtype.itemsize // (2 if dtype.is_complex else 1) if self._is_swapped else 1
        place = (record.key, width)
        if place not in self._storages:
            data = self._bytes[record.key]
            if width > 1:
                data = data[: len(data) // width * width].view(f"u{width}").byteswap().view(np.uint8)
            self._storages[place] = self._memory.storage(data)
        return self._storages[place]

    def _composed(self, record: CompositeRecord, name: str, copy: Copy) -> Any:
        parts = {part: copy(tensor, joined(name, part)) for part, tensor in record.parts.items()}
        try:
            tensor = self._codec.composed(record.kind, parts, record.settings)
        except FormatError as error:
            raise error.with_fields(tensor=name) from None
        return CompositeRecord(record.kind, parts, copy(record.settings, name)) if tensor is None else tensor


def _read_storages(document: PickleDocument, reader: TensorReader) -> dict[str, npt.NDArray[np.uint8]]:
    """Read the bytes of all storages, by mmap if possible, else in a few large reads."""
    spans = sorted(document.spans.items(), key=lambda item: item[1].start)
    entries = {key: TensorEntry("U8", (len(span),), (span.start, span.stop)) for key, span in spans}
    embedded = {key: np.frombuffer(bytearray(data), np.uint8) for key, data in document.embedded.items()}
    return reader.load(entries) | embedded
