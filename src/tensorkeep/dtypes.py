"""The one dtype table: each dtype's name in the safetensors format, in NumPy and in torch.

The rows are in the order of the `Dtype` enumeration of the reference (safetensors 0.8.0), by which the format's
writers sort tensors, last row first. Two rows are separate: dtypes that the format lacks, which other files have.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Final

import msgspec

from tensorkeep.errors import DtypeError

__all__ = ["ALL_BY_NAME", "BY_NAME", "BY_NUMPY", "BY_TORCH", "DTYPES", "FOREIGN_DTYPES", "DType", "find_dtype"]


class DType(msgspec.Struct, frozen=True):
    """One element type.

    Attributes:
        name: Its name in the format, such as `"BF16"`.
        bits: Bits of one element: 4, 6, or a multiple of 8.
        rank: Its place in the order of the format, in which writers put higher ranks first; -1 outside the format.
        numpy: The dtype's name in NumPy, or else in `ml_dtypes`; empty if neither has it.
        torch: The attribute of `torch`; None if torch has no such dtype. `float4_e2m1fn_x2` holds two elements in
            one, so the last dimension of its tensors is half as long.
        bits_name: The NumPy dtype of the same width in which elements are moved, unsigned if there is one. Elements
            narrower than a byte are moved unpacked, one per byte.
    """

    name: str
    bits: int
    rank: int
    numpy: str
    torch: str | None
    bits_name: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; 1 for elements narrower than a byte, which NumPy holds unpacked."""
        return max(1, self.bits // 8)

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte in the file."""
        return self.bits < 8

    @property
    def n_per_group(self) -> int:
        """Elements that together fill whole bytes: 2 of 4 bits, 4 of 6 bits, else 1."""
        return 8 // gcd(8, self.bits)

    @property
    def is_float(self) -> bool:
        """Whether it holds real floating-point numbers; not complex ones."""
        return "float" in self.numpy

    @property
    def is_complex(self) -> bool:
        """Whether each element is two numbers, a real and an imaginary part of half its width."""
        return self.name in {"C32", "C64", "C128"}

    @property
    def is_in_numpy(self) -> bool:
        """Whether NumPy itself has it. Otherwise ml_dtypes may, which gives NumPy the name once it is imported."""
        return self.numpy not in {"bfloat16", ""} and "_e" not in self.numpy

    def nbytes(self, n_elements: int) -> int:
        """Return the bytes that `n_elements` take in a file: the only definition of that number.

        Args:
            n_elements: A count of elements whose bits fill whole bytes.

        Returns:
            The size in bytes.
        """
        return n_elements * self.bits // 8


_ROWS: tuple[tuple[str, int, str, str | None], ...] = (
    ("BOOL", 8, "bool", "bool"),
    ("F4", 4, "float4_e2m1fn", "float4_e2m1fn_x2"),
    ("F6_E2M3", 6, "float6_e2m3fn", None),
    ("F6_E3M2", 6, "float6_e3m2fn", None),
    ("U8", 8, "uint8", "uint8"),
    ("I8", 8, "int8", "int8"),
    ("F8_E5M2", 8, "float8_e5m2", "float8_e5m2"),
    ("F8_E4M3", 8, "float8_e4m3fn", "float8_e4m3fn"),
    ("F8_E8M0", 8, "float8_e8m0fnu", "float8_e8m0fnu"),
    ("F8_E4M3FNUZ", 8, "float8_e4m3fnuz", "float8_e4m3fnuz"),
    ("F8_E5M2FNUZ", 8, "float8_e5m2fnuz", "float8_e5m2fnuz"),
    ("I16", 16, "int16", "int16"),
    ("U16", 16, "uint16", "uint16"),
    ("F16", 16, "float16", "float16"),
    ("BF16", 16, "bfloat16", "bfloat16"),
    ("I32", 32, "int32", "int32"),
    ("U32", 32, "uint32", "uint32"),
    ("F32", 32, "float32", "float32"),
    ("C64", 64, "complex64", "complex64"),
    ("F64", 64, "float64", "float64"),
    ("I64", 64, "int64", "int64"),
    ("U64", 64, "uint64", "uint64"),
)

DTYPES: tuple[DType, ...] = tuple(
    DType(name, bits, rank, numpy, torch, f"uint{max(8, bits)}")
    for rank, (name, bits, numpy, torch) in enumerate(_ROWS)
)
"""The 22 dtypes of the format, in its order."""

BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in DTYPES}
BY_NUMPY: dict[str, DType] = {dtype.numpy: dtype for dtype in DTYPES}
BY_TORCH: dict[str, DType] = {dtype.torch: dtype for dtype in DTYPES if dtype.torch}

FOREIGN_DTYPES: tuple[DType, ...] = (
    DType("C32", 32, -1, "", "complex32", "uint32"),
    DType("C128", 128, -1, "complex128", "complex128", "complex128"),
)
"""Dtypes of other files that the format lacks. In a safetensors file they are unknown dtypes."""

ALL_BY_NAME: dict[str, DType] = BY_NAME | {dtype.name: dtype for dtype in FOREIGN_DTYPES}
"""Every row, for readers of other formats than safetensors."""

HOLDS_QUANTIZED: Final = frozenset(("I32", "U8", "I8", "F8_E4M3", "F8_E5M2"))
"""Dtypes in which quantized numbers are stored by libraries that have no dtype of their own for them."""

_OTHER_SPELLINGS = {
    "bf16": "BF16",
    "fp16": "F16",
    "fp32": "F32",
    "fp64": "F64",
    "half": "F16",
    "single": "F32",
    "double": "F64",
    "fp8_e4m3": "F8_E4M3",
    "fp8_e4m3fn": "F8_E4M3",
    "f8_e4m3fn": "F8_E4M3",
    "fp8_e5m2": "F8_E5M2",
}
_AMBIGUOUS: Final = {"f4", "i8", "u8"}
"""Names of the format that mean other dtypes in NumPy when they are in lower case."""

_AMBIGUOUS_HINT: Final = 'This means one dtype in NumPy and another elsewhere: write "float32", "int64" and the like'


def _spellings() -> dict[str, DType]:
    found = {spelling: BY_NAME[name] for spelling, name in _OTHER_SPELLINGS.items()}
    for dtype in DTYPES:
        found |= {dtype.name.lower(): dtype, dtype.numpy: dtype, dtype.torch or dtype.numpy: dtype}
    return {spelling: dtype for spelling, dtype in found.items() if spelling not in _AMBIGUOUS}


_BY_SPELLING = _spellings()


def find_dtype(spelling: Any) -> DType:
    """Return the dtype for any usual spelling.

    Args:
        spelling: `"BF16"`, `"bf16"`, `"bfloat16"`, `"torch.bfloat16"` and the like; a dtype of NumPy, ml_dtypes or
            torch; or a row of the table. What means one thing in NumPy and another elsewhere (`"f4"`, `"float"`,
            the type `float`) is refused.

    Returns:
        The row of the dtype table.

    Raises:
        DtypeError: If no row, or more than one, is called so.
    """
    if isinstance(spelling, DType):
        return spelling
    name = spelling if isinstance(spelling, str) else _name_of(spelling)
    found = BY_NAME.get(name) or _BY_SPELLING.get(name.lower().removeprefix("torch."))
    if found is None:
        raise DtypeError(
            "no such dtype",
            expected="one of " + ", ".join(BY_NAME) + ', "float32" and the like, or a dtype of NumPy or torch',
            found=repr(spelling),
            hint=_AMBIGUOUS_HINT if name in _AMBIGUOUS | {"float", "int"} else None,
        )
    return found


def torch_row(dtype: object) -> DType | None:
    """Return the row of a torch dtype, or None if safetensors has no such dtype."""
    return BY_TORCH.get(str(dtype).removeprefix("torch."))


def _name_of(dtype: Any) -> str:
    """Return the name of an array library's dtype: `numpy.dtype("f4")`, `numpy.float32`, `torch.float32`."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return name if isinstance(name, str) else str(dtype)
