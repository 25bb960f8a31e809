"""A toy array library, as another package would have it: a class with bytes, a shape and a dtype, and its record.

It knows a few dtypes, has no views, no devices, and nothing beside its elements. All that tensorkeep is told of it is
`TOY`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tensorkeep.arrays import Library, StreamedTensor, TensorToWrite
from tensorkeep.arrays.elements import elements_of
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError

KNOWN = ("F64", "F32", "BF16", "I64", "U8", "BOOL", "C64")


class Toy:
    """A tensor: its bytes in C order and little endian, its shape, the name of its dtype."""

    def __init__(self, data: bytes, shape: tuple[int, ...], dtype: str) -> None:
        self.data, self.shape, self.dtype = data, shape, dtype

    @property
    def T(self) -> Toy:
        """The transposed tensor."""
        elements = np.frombuffer(self.data, BY_NAME[self.dtype].bits_name).reshape(self.shape)
        return Toy(elements.T.tobytes(), elements.T.shape, self.dtype)


class ToyArrays:
    """What tensorkeep needs of it."""

    is_on_host = True
    plain_classes: Mapping[type, Callable[[Any], bool]] = {Toy: lambda toy: toy.dtype in KNOWN}

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Toy]:
        """Make tensors of a buffer."""
        return {
            name: self.from_elements(
                elements_of(name, entry, buffer, base + entry.data_offsets[0]), BY_NAME[entry.dtype]
            )
            for name, entry in entries.items()
        }

    def place(self, tensors: dict[str, Toy]) -> dict[str, Toy]:
        """Leave tensors where they are."""
        return tensors

    def from_elements(self, elements: np.ndarray[Any, Any], dtype: DType) -> Toy:
        """Make a tensor."""
        if dtype.name not in KNOWN:
            raise DtypeError(f"toys have no dtype for {dtype.name}", found=dtype.name, hint='framework="numpy" has')
        return Toy(elements.tobytes(), elements.shape, dtype.name)

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether toys have a dtype."""
        return dtype.name in KNOWN

    def memory_of(self, dtype: DType) -> Any:
        """Toys are copies."""
        return "copied"

    def cast(self, tensor: Toy, dtype: DType) -> Toy:
        """Widen BF16 to F32, which is all that toys can."""
        if (tensor.dtype, dtype.name) != ("BF16", "F32"):
            raise DtypeError(f"toys cannot be cast to {dtype.name}", found=tensor.dtype)
        wide = np.frombuffer(tensor.data, np.uint16).astype(np.uint32) << 16
        return self.from_elements(wide.reshape(tensor.shape), dtype)

    def tensor_to_write(self, tensor: Toy, name: str) -> TensorToWrite:
        """Describe a tensor for writing."""
        if tensor.dtype not in KNOWN:
            raise DtypeError(f"tensor `{name}` has a dtype that the format cannot hold", tensor=name)

        def buffers() -> Iterator[Buffer]:
            for begin in range(0, len(tensor.data), 2**20):
                yield tensor.data[begin : begin + 2**20]

        return StreamedTensor(BY_NAME[tensor.dtype], tensor.shape, len(tensor.data), buffers)


TOY = Library(
    name="toy",
    aliases=("ty",),
    module=__name__,
    tensor_classes=("Toy",),
    arrays=f"{__name__}:ToyArrays",
    install="nothing to install",
    copies=True,
)
