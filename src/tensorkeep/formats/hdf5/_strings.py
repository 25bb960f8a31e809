"""Datasets of text: arrays of strings, each in place or in a heap of the file."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.hdf5._datatype import Datatype
from tensorkeep.formats.hdf5.structures import Blocks, Dialect, Fields, read_global_heap, together
from tensorkeep.limits import MAX_EXPANDED_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_UINT: Final = 4
"""Bytes of the length before the address of a heap, and of the index after it."""


def strings_of(
    name: str, dialect: Dialect, source: ByteSource, datatype: Datatype, shape: tuple[int, ...], place: TensorPlace
) -> StringArray:
    """Return the strings of a dataset, whose elements are at a place: read when they are loaded."""
    read = partial(_read, name, dialect, source, datatype, prod(shape), place)
    return StringArray(shape, read)


def _read(
    name: str, dialect: Dialect, source: ByteSource, datatype: Datatype, n_strings: int, place: TensorPlace
) -> list[Any]:
    try:
        nbytes = n_strings * datatype.nbytes
        if place.chunks is not None and nbytes > MAX_EXPANDED_NBYTES:
            raise LimitError(
                "an array of strings is too large to be unpacked",
                expected=f"at most {MAX_EXPANDED_NBYTES:,} bytes",
                found=f"{nbytes:,}",
            )
        elements = bytes(_elements(source, nbytes, place))
        if datatype.form == "text":
            texts = [elements[start : start + datatype.nbytes] for start in range(0, nbytes, datatype.nbytes)]
        else:
            texts = _from_heaps(dialect, source, elements, n_strings)
        return [_text(text, datatype) for text in texts]
    except TensorkeepError as error:
        raise error.with_fields(path=source.name, tensor=name) from None


def _text(data: bytes, datatype: Datatype) -> str | bytes:
    """Return a string without what pads it: text if the file says that it is UTF-8."""
    data = data.rstrip(datatype.padding) if datatype.padding else data.partition(b"\0")[0]
    if not datatype.is_utf8:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormatError("a text is not UTF-8", found=f"byte {error.start} of {data!r:.100}") from None


def _elements(source: ByteSource, nbytes: int, place: TensorPlace) -> Buffer:
    """Return the bytes of all elements in C order."""
    if not nbytes:
        return b""
    chunks = place.chunks
    if chunks is None:
        return source.read(ByteRange(place.start, place.start + nbytes))
    import numpy as np

    itemsize = nbytes // prod(place.shape)
    whole: Any = np.full(place.shape, np.void(chunks.fill or bytes(itemsize)), f"V{itemsize}")
    for at, chunk in sorted(chunks.stored().items()):
        first = [number * step for number, step in zip(at, chunks.shape, strict=True)]
        into = whole[tuple(slice(start, start + step) for start, step in zip(first, chunks.shape, strict=True))]
        data: Any = np.frombuffer(chunks.unpack(chunk, source.read(chunk.span)), f"V{itemsize}")
        into[...] = data.reshape(chunks.shape)[tuple(map(slice, into.shape))]
    content: bytes = whole.tobytes()
    return content


def _from_heaps(dialect: Dialect, source: ByteSource, elements: bytes, n_strings: int) -> list[bytes]:
    """Return the strings that elements refer to, which take no more bytes together than the file."""
    fields = Fields(elements)
    found = [(fields.uint(_UINT), dialect.address(fields), fields.uint(_UINT)) for _ in range(n_strings)]
    if sum(length for length, address, _ in found if address) > dialect.nbytes:
        raise LimitError(
            "strings refer to the same bytes again and again",
            expected=f"at most {dialect.nbytes:,} bytes together, as the file has",
        )
    addresses = list(dict.fromkeys(address for _, address, _ in found if address))
    heaps = Blocks(source).run(together(read_global_heap(dialect, address) for address in addresses))
    by_address = dict(zip(addresses, heaps, strict=True))
    return [_from_heap(by_address[address], length, index) if address else b"" for length, address, index in found]


def _from_heap(heap: dict[int, bytes], length: int, index: int) -> bytes:
    data = heap.get(index)
    if data is None or len(data) < length:
        raise FormatError("a string is not in its heap", found=f"object {index}")
    return data[:length]
