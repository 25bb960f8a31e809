"""Paddle's state dicts in pickles, as `paddle.load` returns them. Pure.

Paddle pickles a dict of NumPy arrays and marks it: one key lists the names of parameters in the program, another one
the parts into which large parameters are split below protocol 4, where no value may exceed 4 GiB. bfloat16 is stored
as uint16, which Paddle means nothing else by.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, PickleError
from tensorkeep.formats.pickles import (
    DICTS,
    ArrayRecord,
    Payload,
    PickleDocument,
    children_of,
    paddle_array,
    short_repr,
)
from tensorkeep.transport import ByteRange, ByteSource, MemorySource

_NAMES_KEY: Final = "StructuredToParameterName@@"
_PARTS_KEY: Final = "UnpackBigParamInfor@@"
_SUFFIXES: Final = (".pdparams", ".pdopt")


def without_marks(document: PickleDocument, path: str) -> PickleDocument:
    """Return a pickle of Paddle's as the state that was saved; a static graph shows only in the suffix."""
    value = document.value
    if document.form != "pickle" or type(value) is not dict:
        return document
    if not ({_NAMES_KEY, _PARTS_KEY} & value.keys() or path.lower().endswith(_SUFFIXES)):
        return document
    metadata: dict[str, str] = {}
    if _PARTS_KEY in value:
        _join_parts(value, value.pop(_PARTS_KEY))
    if type(value.get(_NAMES_KEY)) is dict and _is_text(value[_NAMES_KEY]):
        metadata[_NAMES_KEY] = msgspec.json.encode(value.pop(_NAMES_KEY)).decode()
    _name_dtypes(value)
    return msgspec.structs.replace(document, metadata=metadata)


def _is_text(names: dict[Any, Any]) -> bool:
    return all(type(key) is str and type(name) is str for key, name in names.items())


def _join_parts(state: dict[Any, Any], parameters: Any) -> None:
    """Put each split parameter in the place of its parts."""
    if type(parameters) is not dict:
        raise PickleError("split parameters are not described as Paddle does", found=type(parameters).__name__)
    for name, description in parameters.items():
        shape, parts = _described(name, description)
        arrays = [state.pop(part, None) for part in parts]
        if name in state:
            raise PickleError(f"split parameter `{short_repr(name)}` is in the file as a whole too")
        state[name] = _joined(name, shape, arrays)


def _described(name: Any, description: Any) -> tuple[tuple[int, ...], list[str]]:
    """Return the shape of a split parameter, and the keys of its parts."""
    fields: dict[Any, Any] = description if type(description) is dict else {}
    shape: Any = fields.get("OriginShape")
    parts: Any = fields.get("slices")
    is_shape = type(shape) is tuple and all(type(extent) is int and extent >= 0 for extent in shape)
    if not is_shape or type(parts) is not list or not parts or any(type(part) is not str for part in parts):
        found = short_repr(description)
        raise PickleError(f"parameter `{short_repr(name)}` is not split as Paddle does", found=found)
    return shape, parts


def _joined(name: Any, shape: tuple[int, ...], parts: Iterable[Any]) -> ArrayRecord:
    arrays: list[ArrayRecord] = []
    for part in parts:
        if type(part) is not ArrayRecord or part.holds_objects or len(part.shape) != 1:
            raise PickleError(f"a part of parameter `{short_repr(name)}` is missing, or not a row of numbers")
        arrays.append(part)
    dtype = arrays[0].dtype
    if any(array.dtype.text != dtype.text for array in arrays) or len(set(map(id, arrays))) < len(arrays):
        raise PickleError(f"the parts of parameter `{short_repr(name)}` differ in dtype, or one is used twice")
    found = sum(array.shape[0] for array in arrays)
    if found != prod(shape):
        raise FormatError(
            f"the parts of parameter `{short_repr(name)}` do not fill its shape",
            expected=f"{prod(shape):,} elements for {list(shape)}",
            found=f"{found:,}",
        )
    data: list[Any] = [array.data for array in arrays]
    if all(type(part) is bytes for part in data):
        return ArrayRecord(dtype, shape, b"".join(data))
    return ArrayRecord(dtype, shape, Payload(tuple(chain.from_iterable(map(_pieces, data)))))


def _pieces(data: bytes | Payload) -> Iterable[tuple[ByteSource, ByteRange]]:
    return data.parts if isinstance(data, Payload) else [(MemorySource(data), ByteRange(0, len(data)))]


def _name_dtypes(value: Any) -> None:
    """Give every array of bfloat16 its dtype."""
    waiting, seen = [value], set()
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is ArrayRecord:
            if not node.is_scalar:
                node.dtype = paddle_array(node).dtype
        elif (kind in DICTS or kind in {list, tuple}) and id(node) not in seen:
            seen.add(id(node))
            waiting.extend(children_of(node))
