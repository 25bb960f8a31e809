"""The tensors that a GGUF header lists. Pure."""

from __future__ import annotations

import struct
from math import prod
from typing import Final

import msgspec

from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import FormatError
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.gguf._types import GGML_TYPES, UnknownType
from tensorkeep.formats.gguf._values import as_name
from tensorkeep.formats.gguf._window import HeaderWindow
from tensorkeep.limits import MAX_I64, MAX_NDIM

_MIN_INFO_NBYTES: Final = 24


class TensorInfo(msgspec.Struct, frozen=True, gc=False):
    """What the header says of one tensor.

    Attributes:
        name: Its name.
        shape: Elements along each dimension, slowest first as in NumPy; the file has the fastest first.
        type_number: Its element type.
        start: First byte, counted from the start of the data.
    """

    name: str
    shape: tuple[int, ...]
    type_number: int
    start: int


def read_infos(window: HeaderWindow, at: int, n: int, order: str) -> tuple[list[TensorInfo], int]:
    """Read the list of tensors, and return where it ends."""
    if n * _MIN_INFO_NBYTES > window.file_nbytes - at:
        raise FormatError("the header declares more tensors than fit the file", found=f"{n:,}")
    infos: list[TensorInfo] = []
    u64, u32 = struct.Struct(f"{order}Q").unpack_from, struct.Struct(f"{order}I").unpack_from
    tails = [struct.Struct(f"{order}{n_dims}QIQ") for n_dims in range(MAX_NDIM + 1)]
    while len(infos) < n:
        data = window.data
        try:
            while len(infos) < n:
                stop = at + 8 + u64(data, at)[0]
                n_dims = u32(data, stop)[0]
                if n_dims > MAX_NDIM:
                    name = as_name(data[at + 8 : stop], "the name of a tensor")
                    raise FormatError(f"tensor `{name}` has {n_dims:,} dimensions", tensor=name)
                *extents, number, start = tails[n_dims].unpack_from(data, stop + 4)
                infos.append(TensorInfo(data[at + 8 : stop].decode(), tuple(extents[::-1]), number, start))
                at = stop + 4 + tails[n_dims].size
        except (struct.error, OverflowError):
            window.grow(_needed(data, at, order))
        except UnicodeDecodeError:
            as_name(data[at + 8 : stop], "the name of a tensor")
    return infos, at


def _needed(data: bytes, at: int, order: str) -> int:
    """Return how far the file must be read for the tensor at a place, as far as what was read tells."""
    if at + 8 > len(data):
        return at + 8
    stop = at + 12 + int(struct.unpack_from(f"{order}Q", data, at)[0])
    if stop > len(data):
        return stop
    (n_dims,) = struct.unpack_from(f"{order}I", data, stop - 4)
    return stop + 8 * int(n_dims) + 12


def place_tensors(
    infos: list[TensorInfo], data_start: int, alignment: int, *, is_big_endian: bool
) -> tuple[dict[str, TensorPlace], dict[str, UnknownType]]:
    """Return where each tensor is, and the tensors of types that nobody here can measure."""
    tensors: dict[str, TensorPlace] = {}
    unknowns: dict[str, UnknownType] = {}
    for info in infos:
        if info.name in tensors or info.name in unknowns:
            raise FormatError(f"tensor `{info.name}` occurs twice", tensor=info.name)
        if info.start % alignment or info.start > MAX_I64:
            raise FormatError(
                f"tensor `{info.name}` does not begin at a multiple of the alignment",
                tensor=info.name,
                expected=f"a multiple of {alignment}",
                found=str(info.start),
            )
        if info.type_number in GGML_TYPES:
            tensors[info.name] = _place(info, data_start, is_big_endian=is_big_endian)
        else:
            unknowns[info.name] = UnknownType(info.type_number, info.shape)
    _refuse_overlaps(tensors)
    return tensors, unknowns


def _place(info: TensorInfo, data_start: int, *, is_big_endian: bool) -> TensorPlace:
    type_ = GGML_TYPES[info.type_number]
    start = data_start + info.start
    if type_.name in BY_NAME:
        return TensorPlace(type_.name, info.shape, start, is_big_endian=is_big_endian)
    row_length = info.shape[-1] if info.shape else 1
    if row_length % type_.n_per_block:
        raise FormatError(
            f"the rows of tensor `{info.name}` are not whole blocks",
            tensor=info.name,
            expected=f"a multiple of {type_.n_per_block} elements of {type_.name}",
            found=str(row_length),
        )
    nbytes = prod(info.shape[:-1]) * type_.row_nbytes(row_length)
    return TensorPlace(type_.name, info.shape, start, nbytes, is_big_endian=is_big_endian)


def _refuse_overlaps(tensors: dict[str, TensorPlace]) -> None:
    """Refuse bytes that belong to two tensors, such as rows cut short by a type of another size."""
    stop, before = 0, ""
    for name, place in sorted(tensors.items(), key=lambda item: item[1].start):
        nbytes = prod(place.shape) * BY_NAME[place.dtype].itemsize if place.nbytes is None else place.nbytes
        if not nbytes:
            continue
        if place.start < stop:
            raise FormatError(
                f"tensors `{before}` and `{name}` overlap",
                expected=f"at least {stop - tensors[before].start:,} bytes for `{before}`, {tensors[before].dtype}",
                found=f"{place.start - tensors[before].start:,}",
                hint="Its rows are too short for its type: was it written by a fork with other types?",
            )
        stop, before = place.start + nbytes, name
