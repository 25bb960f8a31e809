"""What a conversion to safetensors asks of its source, besides tensors by name; simple kinds have none of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from tensorkeep.arrays import Extent
from tensorkeep.tensors import LazyTensor


class StoredView(msgspec.Struct, frozen=True):
    """Where a tensor is stored, so that those that share bytes are found.

    Attributes:
        identity: Equal for tensors that are the same view of the same storage.
        extent: The part of the storage that it covers, in bytes; None where it overlaps no other tensor.
    """

    identity: Hashable
    extent: Extent | None = None


class LeftOut(msgspec.Struct, frozen=True):
    """An object that is not known to be data.

    Attributes:
        name: Its dotted name.
        path: The file that it is in.
        what: Its class or function.
    """

    name: str
    path: str
    what: str


class TensorLeaf(msgspec.Struct, frozen=True, eq=False):
    """A tensor in nested data.

    Attributes:
        names: Its names in a state dict, one for each place where it is.
        library: The array library that it is of.
        marks: Its attributes beside elements, dtype and shape; see `tensorkeep.arrays`.
    """

    names: Sequence[str]
    library: str
    marks: dict[str, Any]


class NestedData(msgspec.Struct, frozen=True):
    """The nested value that a file holds, as data that a safetensors file can hold too.

    Attributes:
        value: Nested plain data, `TensorLeaf`, `EncodedObject`, values of NumPy and labels of torch.
        names: The names of each tensor, which is one object in one or more places.
        n_values: Plain values and arrays in it that are not tensors.
        odd_keys: Texts that replace keys of dicts which are not known to be data.
        replaced: Name to tensor, of those that are converted in another form, such as pairs of real numbers.
    """

    value: Any
    names: Sequence[Sequence[str]]
    n_values: int
    odd_keys: tuple[str, ...]
    replaced: Mapping[str, LazyTensor] = {}
