"""ONNX's data types: what a tensor's elements are, and in which field each may be written. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

FLOAT_DATA: Final = 4
INT32_DATA: Final = 5
INT64_DATA: Final = 7
DOUBLE_DATA: Final = 10
UINT64_DATA: Final = 11

STRING: Final = 8


class DataType(msgspec.Struct, frozen=True):
    """One data type.

    Attributes:
        name: ONNX's name for it.
        dtype: The dtype of its tensors; integers narrower than a byte are widened to one.
        field: The field for its elements if they are not raw bytes.
        bits: Bits of one element in raw bytes.
    """

    name: str
    dtype: str
    field: int
    bits: int

    @property
    def is_widened(self) -> bool:
        """Whether its elements take less room in the file than in a tensor, since no other library has the type."""
        return self.dtype in {"I8", "U8"} and self.bits < 8

    def nbytes(self, n_elements: int) -> int:
        """Return the raw bytes of some elements; the last byte may be filled up."""
        return -(-n_elements * self.bits // 8)


DATA_TYPES: Final = {
    1: DataType("FLOAT", "F32", FLOAT_DATA, 32),
    2: DataType("UINT8", "U8", INT32_DATA, 8),
    3: DataType("INT8", "I8", INT32_DATA, 8),
    4: DataType("UINT16", "U16", INT32_DATA, 16),
    5: DataType("INT16", "I16", INT32_DATA, 16),
    6: DataType("INT32", "I32", INT32_DATA, 32),
    7: DataType("INT64", "I64", INT64_DATA, 64),
    9: DataType("BOOL", "BOOL", INT32_DATA, 8),
    10: DataType("FLOAT16", "F16", INT32_DATA, 16),
    11: DataType("DOUBLE", "F64", DOUBLE_DATA, 64),
    12: DataType("UINT32", "U32", UINT64_DATA, 32),
    13: DataType("UINT64", "U64", UINT64_DATA, 64),
    14: DataType("COMPLEX64", "C64", FLOAT_DATA, 64),
    15: DataType("COMPLEX128", "C128", DOUBLE_DATA, 128),
    16: DataType("BFLOAT16", "BF16", INT32_DATA, 16),
    17: DataType("FLOAT8E4M3FN", "F8_E4M3", INT32_DATA, 8),
    18: DataType("FLOAT8E4M3FNUZ", "F8_E4M3FNUZ", INT32_DATA, 8),
    19: DataType("FLOAT8E5M2", "F8_E5M2", INT32_DATA, 8),
    20: DataType("FLOAT8E5M2FNUZ", "F8_E5M2FNUZ", INT32_DATA, 8),
    21: DataType("UINT4", "U8", INT32_DATA, 4),
    22: DataType("INT4", "I8", INT32_DATA, 4),
    23: DataType("FLOAT4E2M1", "F4", INT32_DATA, 4),
    24: DataType("FLOAT8E8M0", "F8_E8M0", INT32_DATA, 8),
    25: DataType("UINT2", "U8", INT32_DATA, 2),
    26: DataType("INT2", "I8", INT32_DATA, 2),
    27: DataType("FLOAT6E2M3", "F6_E2M3", INT32_DATA, 6),
    28: DataType("FLOAT6E3M2", "F6_E3M2", INT32_DATA, 6),
}
"""Number in a file to data type, as of ONNX 1.23; strings are no tensors."""
