"""What Flax's files consist of besides the elements of arrays, to be written in one pass. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.dtypes import BY_NUMPY, FOREIGN_DTYPES, DType
from tensorkeep.errors import RefusedError
from tensorkeep.formats.msgpack._nested import CHUNKED
from tensorkeep.limits import MAX_GRAPH_DEPTH, MAX_NAME_LENGTH

ARRAY_DTYPES: Final = frozenset(
    dtype.name for dtype in (*BY_NUMPY.values(), *FOREIGN_DTYPES) if dtype.numpy and not dtype.is_packed
)
"""Names of the dtypes of arrays. NumPy holds each element of 4 or 6 bits in a byte, so they differ."""

CHUNK_NBYTES: Final = 2**30
"""Bytes of an array from which Flax cuts it into chunks of so many; lengths in MessagePack have 32 bits."""

_encode: Final = msgspec.msgpack.Encoder().encode


class Emitted(msgspec.Struct, frozen=True):
    """An array to write.

    Attributes:
        name: Its dotted name; the parts are keys of nested dicts.
        dtype: Its dtype.
        shape: Elements along each dimension.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]


class Elements(msgspec.Struct, frozen=True):
    """A place for elements of an array.

    Attributes:
        name: Its name.
        nbytes: How many of its next bytes; None for all that are left.
    """

    name: str
    nbytes: int | None


def name_problem(name: str) -> str | None:
    """Return why an array in a file cannot have a name; None if it can."""
    parts = name.split(".")
    if not parts[0]:
        return "it would be called otherwise when it is read" if name else "it is empty"
    if len(parts) > MAX_GRAPH_DEPTH or len(name) > MAX_NAME_LENGTH:
        return "it is too long, or has too many dots"
    return "Flax marks arrays in chunks so" if CHUNKED in parts else None


def emit_nested(arrays: Iterable[Emitted]) -> Iterator[bytes | Elements]:
    """Yield the parts of a file, with places for elements between them."""
    whole: dict[str, Any] = {}
    for array in arrays:
        *folders, last = array.name.split(".")
        inner = whole
        for folder in folders:
            inner = inner.setdefault(folder, {})
            if type(inner) is not dict:
                raise _clash(array.name)
        if last in inner:
            raise _clash(array.name)
        inner[last] = array
    return _parts(whole)


def _clash(name: str) -> RefusedError:
    return RefusedError(
        f"tensor `{name}` would be inside another one, or another one in it",
        tensor=name,
        expected="names in which no tensor is a folder of others",
        hint="Rename one of them: rename= (--rename)",
    )


def _parts(whole: dict[str, Any]) -> Iterator[bytes | Elements]:
    yield _map_head(len(whole))
    waiting = [iter(whole.items())]
    while waiting:
        for key, value in waiting[-1]:
            yield _encode(key)
            if type(value) is dict:
                yield _map_head(len(value))
                waiting.append(iter(value.items()))
                break
            yield from _array(value)
        else:
            waiting.pop()


def _array(array: Emitted) -> Iterator[bytes | Elements]:
    n_elements = prod(array.shape)
    itemsize = array.dtype.itemsize
    if n_elements * itemsize <= CHUNK_NBYTES:
        yield _head(array.dtype, array.shape, n_elements)
        yield Elements(array.name, None)
        return
    n_each = CHUNK_NBYTES // itemsize
    sizes = [min(n_each, n_elements - start) for start in range(0, n_elements, n_each)]
    shape = {str(place): extent for place, extent in enumerate(array.shape)}
    yield _map_head(3) + _encode(CHUNKED) + _encode(True) + _encode("shape") + _encode(shape)
    yield _encode("chunks") + _map_head(len(sizes))
    for place, n_in_chunk in enumerate(sizes):
        yield _encode(str(place)) + _head(array.dtype, (n_in_chunk,), n_in_chunk)
        yield Elements(array.name, n_in_chunk * itemsize if place + 1 < len(sizes) else None)


def _head(dtype: DType, shape: tuple[int, ...], n_elements: int) -> bytes:
    nbytes = n_elements * dtype.itemsize
    head = b"\x93" + _encode(shape) + _encode(dtype.numpy) + b"\xc6" + nbytes.to_bytes(4, "big")
    return b"\xc9" + (len(head) + nbytes).to_bytes(4, "big") + b"\x01" + head


def _map_head(n_entries: int) -> bytes:
    return b"\xdf" + n_entries.to_bytes(4, "big")
