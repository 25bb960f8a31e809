"""EncodedObject values taken apart to the bottom, sent through the bytes of a file, and put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tensorkeep.arrays import (
    EncodedObject,
    adapter_for,
    codec_for,
    decode_object,
    encode_object,
    known_class,
    plain_library,
    tensor_to_write,
)
from tensorkeep.entries import TensorEntry


def through_bytes(tensor: Any) -> Any:
    """Return a dense tensor that was written and read."""
    host = tensor_to_write(tensor, "w")
    data = bytearray().join(host.buffers())
    assert len(data) == host.nbytes
    library = plain_library(tensor) or ""
    entry = TensorEntry(host.dtype.name, host.shape, (0, len(data)))
    read = adapter_for(library).views(memoryview(data), {"w": entry}, 0)["w"]
    return codec_for(library).with_attributes(read, codec_for(library).attributes_of(tensor))


def taken(value: Any) -> Any:
    """Take a value apart until only dense tensors and plain data are left, which are copied through bytes."""
    if plain_library(value) is not None:
        return through_bytes(value)
    if type(value) in {list, tuple}:
        return type(value)(taken(item) for item in value)
    if type(value) is dict:
        return {key: taken(item) for key, item in value.items()}
    composed = encode_object(value)
    if composed is None:
        return value
    return msgspec.structs.replace(composed, parts=taken(composed.parts), settings=taken(composed.settings))


def put(value: Any, find_class: Callable[[str], type | None] = known_class) -> Any:
    """Put together what `taken` gave."""
    if type(value) is EncodedObject:
        inner = msgspec.structs.replace(
            value, parts=put(value.parts, find_class), settings=put(value.settings, find_class)
        )
        return decode_object(inner, find_class=find_class)
    if type(value) in {list, tuple}:
        return type(value)(put(item, find_class) for item in value)
    if type(value) is dict:
        return {key: put(item, find_class) for key, item in value.items()}
    return value
