"""The element types of ggml: how many elements make a block, and how many bytes a block takes. Pure.

The numbers are the same as in ggml's `ggml_type` and `type_traits`. Where the `gguf` package disagrees (Q8_1, whose
two scales became half as wide), ggml is right.
"""

from __future__ import annotations

from typing import Final

import msgspec


class GgmlType(msgspec.Struct, frozen=True):
    """One element type.

    Attributes:
        name: Its name in ggml, in upper case.
        number: Its number in files.
        n_per_block: Elements of one block; rows are whole blocks.
        block_nbytes: Bytes of one block.
    """

    name: str
    number: int
    n_per_block: int
    block_nbytes: int

    @property
    def is_quantized(self) -> bool:
        """Whether elements are numbers only together with the scales of their block."""
        return self.n_per_block > 1

    def row_nbytes(self, row_length: int) -> int:
        """Return the bytes of a row of whole blocks."""
        return row_length // self.n_per_block * self.block_nbytes

    def raw_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a tensor's blocks as bytes: a row of elements becomes a row of bytes."""
        return (*shape[:-1], self.row_nbytes(shape[-1]))


_ROWS: Final = (
    ("F32", 0, 1, 4),
    ("F16", 1, 1, 2),
    ("Q4_0", 2, 32, 18),
    ("Q4_1", 3, 32, 20),
    ("Q5_0", 6, 32, 22),
    ("Q5_1", 7, 32, 24),
    ("Q8_0", 8, 32, 34),
    ("Q8_1", 9, 32, 36),
    ("Q2_K", 10, 256, 84),
    ("Q3_K", 11, 256, 110),
    ("Q4_K", 12, 256, 144),
    ("Q5_K", 13, 256, 176),
    ("Q6_K", 14, 256, 210),
    ("Q8_K", 15, 256, 292),
    ("IQ2_XXS", 16, 256, 66),
    ("IQ2_XS", 17, 256, 74),
    ("IQ3_XXS", 18, 256, 98),
    ("IQ1_S", 19, 256, 50),
    ("IQ4_NL", 20, 32, 18),
    ("IQ3_S", 21, 256, 110),
    ("IQ2_S", 22, 256, 82),
    ("IQ4_XS", 23, 256, 136),
    ("I8", 24, 1, 1),
    ("I16", 25, 1, 2),
    ("I32", 26, 1, 4),
    ("I64", 27, 1, 8),
    ("F64", 28, 1, 8),
    ("IQ1_M", 29, 256, 56),
    ("BF16", 30, 1, 2),
    ("TQ1_0", 34, 256, 54),
    ("TQ2_0", 35, 256, 66),
    ("MXFP4", 39, 32, 17),
    ("NVFP4", 40, 64, 36),
    ("Q1_0", 41, 128, 18),
    ("Q2_0", 42, 64, 18),
)

GGML_TYPES: Final = {number: GgmlType(name, number, n, nbytes) for name, number, n, nbytes in _ROWS}
"""Number to type. Types without blocks have the names that `tensorkeep.dtypes` gives them."""

GGML_TYPES_BY_NAME: Final = {type_.name: type_ for type_ in GGML_TYPES.values()}

RETIRED_TYPES: Final = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Number to name of types that ggml no longer has."""


class UnknownType(msgspec.Struct, frozen=True):
    """What a tensor is whose type ggml no longer has, or never had.

    Attributes:
        number: The type's number.
        shape: Elements along each dimension.
    """

    number: int
    shape: tuple[int, ...]

    def __str__(self) -> str:
        name = RETIRED_TYPES.get(self.number)
        what = f"{name}, which ggml no longer has" if name else "which is not one of ggml's; a fork may know it"
        return f"a tensor {list(self.shape)!r:.100} of ggml type {self.number}, {what}"
