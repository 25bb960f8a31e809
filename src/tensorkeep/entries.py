"""The vocabulary that formats, arrays and tensors share: what a file says of one tensor.

Readers give `TensorEntry` values that are true of their file: sizes match, ranges lie inside it. Nothing later
checks them again.
"""

from __future__ import annotations

from math import prod
from typing import Annotated

import msgspec

from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.limits import MAX_LISTED_NDIM

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class TensorEntry(msgspec.Struct, frozen=True, gc=False):
    """Type, shape and place of one tensor; exactly the JSON object that a safetensors header holds for it.

    Being that object is what makes a header of 100,000 tensors decode in 40 ms: nothing is built twice.

    Attributes:
        dtype: Name in the format, such as `"F32"`; may be one that this version does not know.
        shape: Elements along each dimension.
        data_offsets: Half-open range in bytes, from the start of the file's data.
    """

    dtype: str
    shape: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_LISTED_NDIM)]
    data_offsets: tuple[_Count, _Count]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the file."""
        start, stop = self.data_offsets
        return stop - start

    @property
    def n_elements(self) -> int:
        """Elements of the tensor."""
        return prod(self.shape)

    @property
    def known_dtype(self) -> DType | None:
        """The row of the dtype table, or None for a dtype that this version does not know."""
        return BY_NAME.get(self.dtype)
