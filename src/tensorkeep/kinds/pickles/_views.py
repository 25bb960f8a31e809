"""Where the tensors of a pickle are stored, so that those that share bytes are found."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tensorkeep.arrays import Extent
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats.pickles import PickleDocument, TensorRecord
from tensorkeep.kinds._convertible import StoredView


def stored_views(
    path: str, document: PickleDocument, tensors: Mapping[str, TensorRecord], records: Mapping[str, Any]
) -> dict[str, StoredView]:
    """Return where each tensor is stored; arrays, whose elements are in the pickle, overlap no other."""
    views = {name: _view(path, document, tensor) for name, tensor in tensors.items() if prod(tensor.shape)}
    return views | {name: StoredView(id(record)) for name, record in records.items() if name not in tensors}


def _view(path: str, document: PickleDocument, tensor: TensorRecord) -> StoredView:
    dtype = ALL_BY_NAME[tensor.dtype]
    steps = [(extent, stride) for extent, stride in zip(tensor.shape, tensor.strides, strict=True) if extent > 1]
    first = dtype.nbytes(tensor.offset)
    last = first + dtype.nbytes(1 + sum((extent - 1) * stride for extent, stride in steps))
    key = tensor.storage.key if tensor.storage else ""
    span = document.spans.get(key)  # several archives in one file may have storages of one key
    storage = f"{path}:{key}:{id(document) if span is None else span.start}"
    changes = (tensor.is_conj, tensor.is_neg)
    return StoredView((storage, dtype.name, first, tensor.shape, *steps, changes), Extent(storage, first, last))
