"""The metadata of one zarr array, version 2 (`.zarray`) or 3 (`zarr.json`). Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Any, Final, TypeVar

import msgspec

from tensorkeep.dtypes import BY_NUMPY, FOREIGN_DTYPES
from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.zarr._coding import (
    Codec,
    Coding,
    KeyEncoding,
    coding_of_version_2,
    coding_of_version_3,
)
from tensorkeep.limits import MAX_I64, MAX_NDIM, MAX_STATE_DEPTH

ARRAY_KEYS: Final = {2: ".zarray", 3: "zarr.json"}
"""Version to the key of an array's metadata, below its name."""

_BY_NAME: Final = {dtype.numpy: dtype.name for dtype in (*BY_NUMPY.values(), *FOREIGN_DTYPES) if dtype.numpy}
_KINDS: Final = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_match_code = re.compile(r"[<>|]([biufc])([0-9]{1,2})").fullmatch
_Schema = TypeVar("_Schema")


class ArrayLayout(msgspec.Struct, frozen=True):
    """What an array is.

    Attributes:
        dtype: Its name in the dtype table; None for one that is not in it.
        what: What zarr calls its dtype.
        shape: Elements along each dimension.
        chunk: Elements of a chunk along each dimension: what is read at once.
        coding: How chunks are stored.
    """

    dtype: str | None
    what: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    coding: Coding = Coding()


class _Version2(msgspec.Struct):
    zarr_format: int
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    order: str = "C"
    dimension_separator: str = "."
    compressor: dict[str, Any] | None = None
    filters: Any = None
    fill_value: Any = None


class _Configuration(msgspec.Struct):
    chunk_shape: tuple[int, ...]


class _Grid(msgspec.Struct):
    name: str
    configuration: _Configuration


class _Version3(msgspec.Struct):
    zarr_format: int
    shape: tuple[int, ...]
    data_type: Any
    chunk_grid: _Grid
    codecs: list[Codec] = []
    chunk_key_encoding: KeyEncoding = msgspec.field(default_factory=KeyEncoding)
    fill_value: Any = None


@lru_cache(1024)
def parse_zarr(data: bytes, *, is_zarr3: bool) -> ArrayLayout:
    """Parse the metadata of an array."""
    if is_zarr3:
        third = _decoded(data, _Version3)
        coding, chunk = coding_of_version_3(
            third.codecs, third.chunk_key_encoding, third.chunk_grid.configuration.chunk_shape, third.fill_value
        )
        return _checked(third.data_type, third.shape, chunk, coding, third.zarr_format, 3)
    second = _decoded(data, _Version2)
    what = second.dtype if isinstance(second.dtype, str) else ""
    coding = coding_of_version_2(
        what, second.order, second.dimension_separator, second.compressor, second.filters, second.fill_value
    )
    return _checked(second.dtype, second.shape, second.chunks, coding, second.zarr_format, 2)


def _decoded(data: bytes, schema: type[_Schema]) -> _Schema:
    try:
        return msgspec.json.decode(data, type=schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError("not the JSON that describes an array of zarr", found=str(error)) from None
    except RecursionError:
        raise LimitError("JSON is nested too deeply", expected=f"at most {MAX_STATE_DEPTH} levels") from None


def _checked(
    dtype: Any, shape: tuple[int, ...], chunk: tuple[int, ...], coding: Coding, version: int, expected: int
) -> ArrayLayout:
    if version != expected:
        raise FormatError("the array has another version of zarr", expected=str(expected), found=str(version))
    if len(shape) > MAX_NDIM or min(shape, default=0) < 0 or prod(extent or 1 for extent in shape) > MAX_I64 // 16:
        raise FormatError("the array has an impossible shape", found=f"{list(shape)!r:.100}")
    outer = coding.shard.shape if coding.shard else chunk
    if len(chunk) != len(shape) or min(chunk, default=1) < 1 or not _is_divided(outer, chunk):
        raise FormatError(
            "the chunks do not fit the array", expected=f"{list(shape)!r:.100}", found=f"{chunk!r:.100}"
        )
    what = dtype if type(dtype) is str else f"{dtype!r:.100}"
    return ArrayLayout(_name_of(what), what, shape, chunk, coding)


def _is_divided(outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    return len(outer) == len(inner) and all(o >= i and o % i == 0 for o, i in zip(outer, inner, strict=True))


def _name_of(what: str) -> str | None:
    match = _match_code(what)
    if match is None:
        return _BY_NAME.get(what)
    kind, nbytes = match.groups()
    return _BY_NAME.get("bool" if kind == "b" else f"{_KINDS[kind]}{8 * int(nbytes)}")
