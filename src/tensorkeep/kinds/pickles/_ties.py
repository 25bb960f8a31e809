"""Tensors that share memory in a pickle: loaded into memory of their own, or refused."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from tensorkeep.arrays import Extent
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import SharedMemoryError
from tensorkeep.formats.pickles import ArrayRecord, CompositeRecord, StorageRecord, StorageView, TensorRecord
from tensorkeep.kinds.pickles._flat import Leaf, leaves_of
from tensorkeep.kinds.pickles._keys import joined
from tensorkeep.kinds.pickles._load import Replacement
from tensorkeep.kinds.pickles._records import LazyRecords, extent_of, tensor_of
from tensorkeep.kinds.pickles._tree import Copy, copy_tree
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import Elements, LazyTensor, TensorReader, load_together, overlapping, with_common_elements
from tensorkeep.texts import listed

_TENSORS = frozenset({TensorRecord, StorageRecord, StorageView})


class CopiedValue(msgspec.Struct, frozen=True, eq=False):
    """The value of a file or a part of it, before each of its tensors is loaded into memory of its own.

    Attributes:
        reader: Reader of the file.
        value: The value, with records of tensors.
        tensors: Its tensors, in the order in which the value is copied.
        arrays: Identities of the records of NumPy arrays that are among them.
    """

    reader: TensorReader
    value: Any
    tensors: Sequence[LazyTensor]
    arrays: Container[int]

    @property
    def nbytes(self) -> int:
        """Bytes that are loaded."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def load(self, meter: ProgressMeter | None) -> Any:
        """Return the value with tensors."""
        by_place = {str(place): tensor for place, tensor in enumerate(self.tensors)}
        with PausedCollector():
            loaded = iter(load_together(by_place, meter).values())
            replacement = Replacement(self.reader, lambda _: next(loaded), self.arrays)
            return copy_tree(self.value, replacement.make, ties_leaves=False)


def copied_value(value: Any, records: LazyRecords, arrays: Container[int]) -> CopiedValue:
    """Return a value, to be loaded without shared memory; `arrays` are the NumPy arrays that become tensors."""
    tensors: list[LazyTensor] = []

    def collect(record: Any, name: str, copy: Copy) -> None:
        if id(record) in arrays:
            tensors.append(records.lazy(name, record))
        elif type(record) in _TENSORS:
            tensor = tensor_of(record)
            if tensor.storage is not None:
                tensors.append(records.lazy(name, tensor))
        elif type(record) is CompositeRecord:
            for part, child in record.parts.items():
                copy(child, joined(name, part))
            copy(record.settings, name)

    copy_tree(value, collect, ties_leaves=False)
    return CopiedValue(records.reader, value, tensors, arrays)


def refuse_shared(value: Any, path: str) -> None:
    """Refuse a value in which tensors share memory, or one is in two places."""
    elements = {name: found for name, leaf in leaves_of(value).tensors.items() if (found := _elements(leaf))}
    extents = {name: Extent(device, at.start, at.stop) for name, (device, at) in elements.items()}
    for near in overlapping(extents):
        for names in with_common_elements({name: elements[name][1] for name in near}):
            raise SharedMemoryError(
                "tensors share memory",
                path=path,
                tensor=names[0],
                found=listed((f"`{name}`" for name in names), 10),
                hint='Pass ties="share" to share it again, or ties="copy" to give each tensor its own',
            )


def _elements(leaf: Leaf) -> tuple[str, Elements] | None:
    """Return the storage of a tensor and where its elements are in it; None if it has none."""
    if isinstance(leaf, ArrayRecord):  # shares memory only with itself
        return f"array {id(leaf)}", Elements(0, 1, 1, (1,), (1,))
    tensor = tensor_of(leaf)
    extent = extent_of(tensor)
    if tensor.storage is None or not len(extent):
        return None
    itemsize = ALL_BY_NAME[tensor.dtype].itemsize
    return tensor.storage.key, Elements(extent.start, extent.stop, itemsize, tensor.shape, tensor.strides)
