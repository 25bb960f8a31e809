"""What a conversion to safetensors needs besides tensors by name. Simple kinds provide none of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from tensorkeep.arrays import Extent
from tensorkeep.tensors import LazyTensor


class StoredView(msgspec.Struct, frozen=True):
    """Where a tensor is stored, to find tensors that share bytes.

    Attributes:
        identity: Equal for tensors that are the same view of the same storage.
        extent: The byte range of the storage that it covers; None if it overlaps no other tensor.
    """

    identity: Hashable
    extent: Extent | None = None


class LeftOut(msgspec.Struct, frozen=True):
    """An object that a conversion leaves out: not known to be data, or data that no tensor can hold.

    Attributes:
        name: Its dotted name.
        path: Its file.
        what: Its class or function, or what else it is.
        is_data: Whether it is plain data, which is reported but no reason to refuse the conversion.
        is_run: Whether another program may run something to build it.
        is_untyped: Whether it is a tensor whose file names no dtype, so that the caller may.
    """

    name: str
    path: str
    what: str
    is_data: bool = False
    is_run: bool = False
    is_untyped: bool = False


class TensorLeaf(msgspec.Struct, frozen=True, eq=False):
    """A tensor in nested data.

    Attributes:
        names: Its names in a state dict, one for each place.
        library: Its array library.
        marks: Its attributes besides elements, dtype and shape; see `tensorkeep.arrays`.
    """

    names: Sequence[str]
    library: str
    marks: dict[str, Any]


class NestedData(msgspec.Struct, frozen=True):
    """The nested value of a file, as data that a safetensors file can hold too.

    Attributes:
        value: Nested plain data, `TensorLeaf`, `EncodedObject`, NumPy values and torch labels.
        names: The names of each tensor; a tensor in several places has several.
        n_values: Number of plain values and arrays that are not tensors.
        odd_keys: Text that replaces dict keys that are not known to be data.
        replaced: Name to tensor, for tensors that are converted in another form, such as complex as real pairs.
    """

    value: Any
    names: Sequence[Sequence[str]]
    n_values: int
    odd_keys: tuple[str, ...]
    replaced: Mapping[str, LazyTensor] = {}
