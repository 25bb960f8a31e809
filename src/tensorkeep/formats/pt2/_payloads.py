"""The files of JSON that say, for each weight of a program, in which member it is, and how. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError
from tensorkeep.limits import MAX_I64, MAX_NDIM

DTYPES: Final = {
    1: "U8",
    2: "I8",
    3: "I16",
    4: "I32",
    5: "I64",
    6: "F16",
    7: "F32",
    8: "F64",
    9: "C32",
    10: "C64",
    11: "C128",
    12: "BOOL",
    13: "BF16",
    28: "U16",
    29: "F8_E4M3",
    30: "F8_E5M2",
    31: "F8_E4M3FNUZ",
    32: "F8_E5M2FNUZ",
    33: "F8_E8M0",
    34: "U32",
    35: "U64",
}
"""Numbers of dtypes in the schema of torch.export; torch itself has others."""

_STRIDED: Final = 7


class _Number(msgspec.Struct):
    """An extent, which may also be an expression."""

    as_int: int | None = None


class _Meta(msgspec.Struct):
    """How a tensor lies in its storage."""

    dtype: int
    sizes: list[_Number]
    strides: list[_Number]
    storage_offset: _Number
    layout: int = _STRIDED


class Payload(msgspec.Struct):
    """One weight, as the file says.

    Attributes:
        path_name: Its member, in the folder of the file.
        use_pickle: Whether that is a pickle.
        tensor_meta: How it lies in its storage; None for an object that is no tensor.
    """

    path_name: str
    use_pickle: bool = False
    tensor_meta: _Meta | None = None


class _Config(msgspec.Struct):
    config: dict[str, Payload]


class View(msgspec.Struct, frozen=True):
    """A strided view of a storage.

    Attributes:
        dtype: Name in the dtype table; None if the storage says it.
        shape: Elements along each dimension.
        strides: Elements from one entry of each dimension to the next.
        offset: Elements before the first one.
    """

    dtype: str | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def stop(self, dtype: str) -> int:
        """Return the bytes of the storage up to the end of the last element, given the dtype."""
        if not prod(self.shape):
            return 0
        steps = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return ALL_BY_NAME[dtype].itemsize * (self.offset + steps + 1)


def parse_payloads(text: bytes, what: str) -> dict[str, Payload]:
    """Return the weights by name."""
    try:
        found = msgspec.json.decode(text, type=_Config).config
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not what torch.export writes", found=f"{error!s:.200}") from None
    if text.count(b'"path_name"') != len(found):
        _refuse_repeats(text, what)
    return found


def pickled_members(text: bytes, what: str) -> set[str]:
    """Return the members that are pickles, as a list of weights says."""
    return {payload.path_name for payload in parse_payloads(text, what).values() if payload.use_pickle}


def parse_compiled_weights(text: bytes, what: str) -> dict[str, tuple[str, View]]:
    """Return the weights of compiled code: name to member and view."""
    try:
        found = msgspec.json.decode(text, type=dict[str, tuple[str, list[int], list[int], int]])
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not what torch writes", found=f"{error!s:.200}") from None
    _refuse_repeats(text, what)
    return {
        name: (member, checked_view(name, View(None, tuple(shape), tuple(strides), offset)))
        for name, (member, shape, strides, offset) in found.items()
    }


def view_of(name: str, payload: Payload) -> View | str:
    """Return how a tensor lies in its storage, or why no tensor can show it."""
    meta = payload.tensor_meta
    if meta is None:
        return "an object, which is not built"
    dtype = DTYPES.get(meta.dtype)
    if dtype is None:
        return f"a tensor of a dtype that is not known, number {meta.dtype}"
    if meta.layout != _STRIDED:
        return f"a tensor that is not strided, of layout {meta.layout}"
    numbers = [*(size.as_int for size in meta.sizes), *(step.as_int for step in meta.strides)]
    offset = meta.storage_offset.as_int
    whole = [number for number in numbers if number is not None]
    if offset is None or len(whole) < len(numbers):
        return "a tensor whose size is an expression"
    ndim = len(meta.sizes)
    return checked_view(name, View(dtype, tuple(whole[:ndim]), tuple(whole[ndim:]), offset))


def checked_view(name: str, view: View) -> View:
    """Refuse a view that no tensor can be."""
    numbers = (*view.shape, *view.strides, view.offset)
    if (
        len(view.shape) != len(view.strides)
        or len(view.shape) > MAX_NDIM
        or min(numbers) < 0
        or max(numbers) > MAX_I64
    ):
        found = f"shape {view.shape}, strides {view.strides}, offset {view.offset}"
        raise FormatError(f"no tensor has the layout of tensor `{name}`", tensor=name, found=f"{found:.200}")
    return view


def _refuse_repeats(text: bytes, what: str) -> None:
    """Refuse a key that occurs twice: readers may take either."""

    def unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            n_each = Counter(key for key, _ in pairs)
            raise FormatError(f"{what} names something twice", found=repr(n_each.most_common(1)[0][0])[:200])
        return found

    try:
        json.loads(text, object_pairs_hook=unique)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not what torch.export writes", found=f"{error!s:.200}") from None
