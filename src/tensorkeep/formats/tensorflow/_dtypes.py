"""TensorFlow's dtypes by their numbers, with the rows of our table that have the same bytes. Pure.

Numbers narrower than a byte have a byte each in a checkpoint. Whole numbers of 4 and 2 bits are read as 8-bit ones.
"""

from __future__ import annotations

from typing import Final

import msgspec

STRING: Final = 7
RESOURCE: Final = 20
VARIANT: Final = 21


class ForeignDType(msgspec.Struct, frozen=True):
    """One of TensorFlow's dtypes.

    Attributes:
        name: TensorFlow's name.
        dtype: Name in the dtype table; None if it has none with these bytes.
        itemsize: Bytes of one element; 0 if they differ in size.
        bits: Bits of each byte that are the number, if they are fewer than 8.
    """

    name: str
    dtype: str | None
    itemsize: int
    bits: int | None = None

    @property
    def listed_as(self) -> str:
        """The name that its tensors have: of the table if it is there, else TensorFlow's."""
        return self.dtype or self.name

    @property
    def is_read_as_another(self) -> bool:
        """Whether its elements mean more, or less, than the numbers of the other dtype."""
        return self.dtype is not None and (self.name[0] == "q" or self.bits is not None)


BY_NUMBER: Final = {
    1: ForeignDType("float32", "F32", 4),
    2: ForeignDType("float64", "F64", 8),
    3: ForeignDType("int32", "I32", 4),
    4: ForeignDType("uint8", "U8", 1),
    5: ForeignDType("int16", "I16", 2),
    6: ForeignDType("int8", "I8", 1),
    STRING: ForeignDType("string", None, 0),
    8: ForeignDType("complex64", "C64", 8),
    9: ForeignDType("int64", "I64", 8),
    10: ForeignDType("bool", "BOOL", 1),
    11: ForeignDType("qint8", "I8", 1),
    12: ForeignDType("quint8", "U8", 1),
    13: ForeignDType("qint32", "I32", 4),
    14: ForeignDType("bfloat16", "BF16", 2),
    15: ForeignDType("qint16", "I16", 2),
    16: ForeignDType("quint16", "U16", 2),
    17: ForeignDType("uint16", "U16", 2),
    18: ForeignDType("complex128", "C128", 16),
    19: ForeignDType("float16", "F16", 2),
    RESOURCE: ForeignDType("resource", None, 0),
    VARIANT: ForeignDType("variant", None, 0),
    22: ForeignDType("uint32", "U32", 4),
    23: ForeignDType("uint64", "U64", 8),
    24: ForeignDType("float8_e5m2", "F8_E5M2", 1),
    25: ForeignDType("float8_e4m3fn", "F8_E4M3", 1),
    26: ForeignDType("float8_e4m3fnuz", "F8_E4M3FNUZ", 1),
    27: ForeignDType("float8_e4m3b11fnuz", None, 1),
    28: ForeignDType("float8_e5m2fnuz", "F8_E5M2FNUZ", 1),
    29: ForeignDType("int4", "I8", 1, bits=4),
    30: ForeignDType("uint4", "U8", 1, bits=4),
    31: ForeignDType("int2", "I8", 1, bits=2),
    32: ForeignDType("uint2", "U8", 1, bits=2),
    33: ForeignDType("float4_e2m1fn", None, 1),
}
"""All that a checkpoint may have; references (numbers over 100) are of running programs."""

NUMBERS: Final = {
    found.dtype: number for number, found in reversed(BY_NUMBER.items()) if found.dtype and found.name[0] != "q"
}
"""Name in the dtype table to TensorFlow's number; the first of those with the same bytes."""
