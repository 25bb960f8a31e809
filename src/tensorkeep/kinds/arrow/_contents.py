"""Where the tensors of a file are: a column in several batches is one tensor."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats import FileContents, StringArray, TensorPlace
from tensorkeep.formats.arrow import (
    BitSource,
    Column,
    CompressedSource,
    Document,
    LoneTensor,
    Part,
    Rows,
    read_document,
    string_array,
)
from tensorkeep.tensors import c_strides
from tensorkeep.texts import counted
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource

_TYPES_KEY: Final = "arrow.types"
"""Key of the types that dtypes do not tell, such as `timestamp[us, UTC]`, in JSON by name."""

_ALONE: Final = "tensor"
_PLAIN: Final = ("int", "uint", "float", "bool")


def parse_arrow(source: ByteSource) -> FileContents:
    """Read everything but the elements; columns that no tensor can hold are unknown."""
    document = read_document(source)
    if document.tensors:
        return _lone(document.tensors)
    tensors: dict[str, TensorPlace] = {}
    strings: dict[str, StringArray] = {}
    unknowns = {name: f"a column of {text}" for name, text in document.others.items()}
    for column in document.columns:
        name = column.name
        if column.n_nulls:
            nulls, rows = counted(column.n_nulls, "null"), counted(column.n_rows, "row")
            unknowns[name] = f"a column of {column.leaf.text} with {nulls} in {rows}"
        elif column.leaf.text_width:
            strings[name] = string_array(column, source, is_big_endian=document.is_big_endian)
        else:
            tensors[name] = _place(column, source, is_big_endian=document.is_big_endian)
    return FileContents(tensors, metadata=_metadata(document), unknowns=unknowns, strings=strings)


def _metadata(document: Document) -> dict[str, str]:
    types = {
        column.name: column.leaf.text
        for column in document.columns
        if column.leaf.dtype and not column.leaf.text.startswith(_PLAIN)
    }
    own = {_TYPES_KEY: msgspec.json.encode(types).decode()} if types else {}
    return (document.metadata or {}) | own


def _place(column: Column, source: ByteSource, *, is_big_endian: bool) -> TensorPlace:
    leaf = column.leaf
    shape, strides = _shape_of(leaf.rows, column.n_rows)
    dtype = leaf.dtype or ""
    start, bytes_of = 0, None
    if 0 not in shape:
        parts = [_unpacked(part, source, is_bits=column.is_bits) for part in column.parts if part.n_elements]
        if len(parts) == 1 and parts[0][0] is source:
            start = parts[0][1].start
        else:
            bytes_of = parts[0][0] if len(parts) == 1 else JoinedSource(parts, source.name)
    is_swapped = is_big_endian and ALL_BY_NAME[dtype].itemsize > 1
    return TensorPlace(dtype, shape, start, strides=strides, is_big_endian=is_swapped, source=bytes_of)


@lru_cache(1024)
def _shape_of(rows: Rows, n_rows: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the shape of so many rows, and their strides if they are not in C order."""
    shape, strides = (n_rows, *rows.shape), (rows.per_row, *rows.strides)
    return shape, None if strides == c_strides(shape) else strides


def _unpacked(part: Part, source: ByteSource, *, is_bits: bool) -> tuple[ByteSource, ByteRange]:
    """Return a source of the elements of a batch, and where they are in it."""
    inner, span = source, part.span
    if part.codec is not None:
        inner, span = CompressedSource(source, part.span, part.codec, part.nbytes), ByteRange(0, part.nbytes)
    if is_bits:
        return BitSource(inner, span, part.n_elements), ByteRange(0, part.n_elements)
    return inner, span


def _lone(tensors: list[LoneTensor]) -> FileContents:
    names = [_ALONE] if len(tensors) == 1 else map(str, range(len(tensors)))
    places: dict[str, TensorPlace] = {}
    for name, tensor in zip(names, tensors, strict=True):
        itemsize = ALL_BY_NAME[tensor.dtype].itemsize
        strides = tuple(step // itemsize for step in tensor.strides) or None
        places[name] = TensorPlace(tensor.dtype, tensor.shape, tensor.span.start, strides=strides)
    return FileContents(places)
