"""Columns of strings: offsets into bytes, read and checked when they are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.arrow._buffers import decoded
from tensorkeep.formats.arrow._columns import Column, Part
from tensorkeep.transport import ByteSource


def string_array(column: Column, source: ByteSource, *, is_big_endian: bool) -> StringArray:
    """Return a column of strings."""
    order = ">" if is_big_endian else "<"
    dtype = f"{order}i{column.leaf.text_width}"
    return StringArray((column.n_rows,), partial(_read, column, source, dtype))


def _read(column: Column, source: ByteSource, dtype: str) -> list[Any]:
    return [
        string
        for offsets, texts in zip(column.parts, column.texts, strict=True)
        for string in _strings(column, source, offsets, texts, dtype)
    ]


def _strings(column: Column, source: ByteSource, offsets: Part, texts: Part, dtype: str) -> Iterator[str | bytes]:
    if not offsets.n_elements:
        return
    import numpy as np

    data = bytes(_buffer(source, texts))
    places = np.frombuffer(_buffer(source, offsets), dtype)
    if places[0] < 0 or places[-1] > len(data) or (np.diff(places) < 0).any():
        raise FormatError("the offsets of strings are not in order", path=source.name, tensor=column.name)
    ends = places.tolist()
    try:
        for start, stop in pairwise(ends):
            string = data[start:stop]
            yield string if column.leaf.is_binary else string.decode()
    except UnicodeDecodeError as error:
        raise FormatError("a string is not UTF-8", path=source.name, tensor=column.name, found=str(error)) from None


def _buffer(source: ByteSource, part: Part) -> Buffer:
    data = source.read(part.span)
    if part.codec is None:
        return data
    return decoded(bytes(data), part.codec, None if part.nbytes < 0 else part.nbytes, source.name)
