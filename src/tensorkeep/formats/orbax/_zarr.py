"""The metadata of one zarr array, version 2 (`.zarray`) or 3 (`zarr.json`). Pure."""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.dtypes import BY_NUMPY, FOREIGN_DTYPES
from tensorkeep.errors import FormatError
from tensorkeep.formats.orbax._tree import parse_json
from tensorkeep.limits import MAX_I64, MAX_NDIM

_BY_NAME: Final = {dtype.numpy: dtype.name for dtype in (*BY_NUMPY.values(), *FOREIGN_DTYPES) if dtype.numpy}
_KINDS: Final = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_match_code = re.compile(r"[<>|]([biufc])([0-9]{1,2})").fullmatch


class ArrayLayout(msgspec.Struct, frozen=True):
    """What an array is.

    Attributes:
        dtype: Its name in the dtype table; None for one that is not in it.
        what: What zarr calls its dtype.
        shape: Elements along each dimension.
        chunk: Elements of a chunk along each dimension: what is read at once.
    """

    dtype: str | None
    what: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]


class _Version2(msgspec.Struct):
    zarr_format: int
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any


class _Configuration(msgspec.Struct):
    chunk_shape: tuple[int, ...]


class _Grid(msgspec.Struct):
    name: str
    configuration: _Configuration


class _Codec(msgspec.Struct):
    name: str
    configuration: Any = None


class _Version3(msgspec.Struct):
    zarr_format: int
    shape: tuple[int, ...]
    data_type: Any
    chunk_grid: _Grid
    codecs: list[_Codec] = []


def parse_zarr(data: bytes, *, is_zarr3: bool) -> ArrayLayout:
    """Parse the metadata of an array."""
    if is_zarr3:
        third: _Version3 = parse_json(data, _Version3)
        return _checked(third.data_type, third.shape, _inner_chunk(third), third.zarr_format, 3)
    second: _Version2 = parse_json(data, _Version2)
    return _checked(second.dtype, second.shape, second.chunks, second.zarr_format, 2)


def _inner_chunk(array: _Version3) -> tuple[int, ...]:
    """Return the chunks that can be read alone: those within the shards, if the chunks of the array are shards."""
    for codec in array.codecs:
        if codec.name == "sharding_indexed":
            try:
                return msgspec.convert(codec.configuration, _Configuration).chunk_shape
            except msgspec.ValidationError as error:
                raise FormatError("the codecs of the array are malformed", found=str(error)) from None
    return array.chunk_grid.configuration.chunk_shape


def _checked(dtype: Any, shape: tuple[int, ...], chunk: tuple[int, ...], version: int, expected: int) -> ArrayLayout:
    if version != expected:
        raise FormatError("the array has another version of zarr", expected=str(expected), found=str(version))
    if len(shape) > MAX_NDIM or min(shape, default=0) < 0 or prod(extent or 1 for extent in shape) > MAX_I64 // 16:
        raise FormatError("the array has an impossible shape", found=f"{list(shape)!r:.100}")
    if len(chunk) != len(shape) or any(each < 1 for each in chunk):
        raise FormatError(
            "the chunks do not fit the array", expected=f"{list(shape)!r:.100}", found=f"{chunk!r:.100}"
        )
    what = dtype if type(dtype) is str else f"{dtype!r:.100}"
    return ArrayLayout(_name_of(what), what, shape, chunk)


def _name_of(what: str) -> str | None:
    match = _match_code(what)
    if match is None:
        return _BY_NAME.get(what)
    kind, nbytes = match.groups()
    return _BY_NAME.get("bool" if kind == "b" else f"{_KINDS[kind]}{8 * int(nbytes)}")
