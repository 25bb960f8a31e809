"""What a `.npy` or `.npz` file holds: arrays at their places, and what is not a tensor. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.errors import DtypeError, TensorNotFoundError
from tensorkeep.formats.archives import Member
from tensorkeep.formats.npy._elements import Field
from tensorkeep.formats.npy._header import ArrayHeader

Form = Literal["npy", "npz"]

_APART = "a field whose numbers are not whole multiples of their size apart"


class StoredArray(msgspec.Struct, frozen=True, gc=False):
    """An array, or one field of a structured one, at its place in the file.

    Attributes:
        member: Name of the member that it is in.
        dtype: Name in the dtype table, such as `"F32"`.
        shape: Elements along each dimension.
        start: Byte of the member's contents at which the first element lies.
        strides: Elements from one entry of each dimension to the next.
        is_big_endian: Whether numbers have their highest byte first.
    """

    member: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    strides: tuple[int, ...]
    is_big_endian: bool


class UnknownArray(msgspec.Struct, frozen=True, gc=False):
    """Something in the file that is not a tensor, or not known to be one.

    Attributes:
        member: Name of the member that it is in.
        code: NumPy's text for its dtype, such as `"|O"`; empty for a member that is not an array.
        shape: Elements along each dimension.
        reason: Why it is not read.
        item_nbytes: Bytes of each element if the caller may name a dtype for them; else 0.
        start: Byte of the member's contents at which the first element lies.
        steps: Bytes from one entry of each dimension to the next.
    """

    member: str
    code: str
    shape: tuple[int, ...]
    reason: str
    item_nbytes: int = 0
    start: int = 0
    steps: tuple[int, ...] = ()


class ArrayFile(msgspec.Struct, frozen=True):
    """All that a file holds.

    Attributes:
        form: `"npy"`, one array, which is called `tensor`; or `"npz"`, a zip archive of them.
        members: Name to where its contents lie. The only member of a `.npy` file is all of it, and has no name.
        arrays: Name to array, in the order of the file.
        unknowns: Name to everything else in the file.
    """

    form: Form
    members: dict[str, Member]
    arrays: dict[str, StoredArray]
    unknowns: dict[str, UnknownArray]

    def with_dtypes(self, dtypes: Mapping[str, DType]) -> ArrayFile:
        """Return the same file with dtypes for arrays whose bytes have none."""
        arrays, unknowns = dict(self.arrays), dict(self.unknowns)
        for name, dtype in dtypes.items():
            unknown = unknowns.pop(name, None)
            if unknown is None:
                raise TensorNotFoundError(
                    f"no array without a dtype is called `{name}`",
                    tensor=name,
                    found=", ".join(self.unknowns) or "none",
                )
            if dtype.is_packed or dtype.itemsize != unknown.item_nbytes:
                raise DtypeError(
                    "the array's elements do not have the size of this dtype",
                    tensor=name,
                    expected=f"{dtype.bits / 8:g} bytes for {dtype.name}",
                    found=f"{unknown.item_nbytes} ({unknown.code})" if unknown.item_nbytes else unknown.reason,
                )
            strides = tuple(step // unknown.item_nbytes for step in unknown.steps)
            arrays[name] = StoredArray(unknown.member, dtype.name, unknown.shape, unknown.start, strides, False)
        return msgspec.structs.replace(self, arrays=arrays, unknowns=unknowns)


def place_array(
    name: str, member: str, header: ArrayHeader, data_start: int
) -> dict[str, StoredArray | UnknownArray]:
    """Return the array by its name, or the fields of a structured one by theirs."""
    return {name + field.path: _place_field(field, member, header, data_start) for field in header.elements.fields}


def _place_field(field: Field, member: str, header: ArrayHeader, data_start: int) -> StoredArray | UnknownArray:
    shape, steps = header.shape + field.shape, header.steps + field.steps
    start = data_start + field.start
    nbytes = ALL_BY_NAME[field.dtype].itemsize if field.dtype else field.nbytes
    are_whole = nbytes and all(step % nbytes == 0 for extent, step in zip(shape, steps, strict=True) if extent > 1)
    if header.elements.holds_objects or field.dtype is None or not are_whole:
        item_nbytes = nbytes if field.is_raw and are_whole and not header.elements.holds_objects else 0
        return UnknownArray(member, field.code, shape, field.reason or _APART, item_nbytes, start, steps)
    strides = tuple(step // nbytes for step in steps)
    return StoredArray(member, field.dtype, shape, start, strides, field.is_big_endian)
