"""A file, a stream or tensors without columns, as columns and tensors whose places are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.arrow._columns import Column, columns_of
from tensorkeep.formats.arrow._flatbuffers import checked_offsets
from tensorkeep.formats.arrow._layout import Layout
from tensorkeep.formats.arrow._messages import (
    BATCH,
    MAGIC,
    SCHEMA,
    SPARSE_TENSOR,
    TENSOR,
    Message,
    read_batches,
    read_footer,
    read_stream,
)
from tensorkeep.formats.arrow._schema import Schema, parse_metadata, parse_schema, parse_type
from tensorkeep.limits import MAX_NDIM
from tensorkeep.transport import ByteRange, ByteSource

_OTHERS: Final = {
    b"PAR1": (
        "a Parquet file",
        "pyarrow.feather.write_feather(pyarrow.parquet.read_table(path), new_path) makes an Arrow file of it",
    ),
    b"FEA1": (
        "a file of Feather version 1",
        "pyarrow.feather.write_feather(pyarrow.feather.read_table(path), new_path) makes version 2 of it",
    ),
}
"""First bytes of formats that share names or suffixes with Arrow's, and what to do."""


class LoneTensor(msgspec.Struct, frozen=True):
    """A tensor that is a message of its own.

    Attributes:
        dtype: Name in the dtype table.
        shape: Elements along each dimension.
        strides: Bytes from one entry to the next in each; empty for C order.
        span: Its bytes in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    span: ByteRange


class Document(msgspec.Struct, frozen=True):
    """What a file holds.

    Attributes:
        columns: Its columns.
        tensors: Its tensors that are not columns.
        others: Name to type of each column that is neither numbers nor strings.
        metadata: Free text by key; None if there is no schema.
        is_big_endian: Whether elements have their highest byte first.
        pickled: Names of the columns whose types some versions of pyarrow unpickle.
        r_texts: Texts of R's arrow package, which some versions of it run.
    """

    columns: list[Column] = []
    tensors: list[LoneTensor] = []
    others: dict[str, str] = {}
    metadata: dict[str, str] | None = None
    is_big_endian: bool = False
    pickled: list[str] = []
    r_texts: tuple[str, ...] = ()


def read_document(source: ByteSource) -> Document:
    """Read everything but the elements."""
    head = bytes(source.read(ByteRange(0, min(len(MAGIC), source.nbytes))))
    if head[:4] in _OTHERS:
        what, hint = _OTHERS[head[:4]]
        raise UnsupportedError(f"this is {what}, which is not read", expected="an Arrow file or stream", hint=hint)
    with PausedCollector(), checked_offsets():
        return _read(source, head)


def _read(source: ByteSource, head: bytes) -> Document:
    if head == MAGIC:
        footer = read_footer(source)
        table = footer.table.table(1)
        if table is None:
            raise FormatError("the footer has no schema")
        extra = dict(parse_metadata(footer.table, 4))
        return _with_columns(parse_schema(table, footer.nbytes), extra, read_batches(source, footer))
    messages = read_stream(source)
    first = next(messages, None)
    if first is not None and first.kind == SCHEMA:
        schema = parse_schema(first.header, first.nbytes)
        return _with_columns(schema, {}, (message for message in messages if message.kind == BATCH))
    if first is None or first.kind != TENSOR:
        what = "a sparse tensor" if first is not None and first.kind == SPARSE_TENSOR else "something else"
        raise UnsupportedError("the stream does not begin with a schema or a tensor", found=what)
    return Document(tensors=[_lone_tensor(message) for message in (first, *messages)])


def _with_columns(schema: Schema, extra: dict[str, str], batches: Iterator[Message]) -> Document:
    layout = Layout(schema)
    columns = columns_of(layout, batches)
    pickled = [field.name for field in schema.fields if field.form.is_pickled]
    metadata = schema.metadata | extra
    return Document(columns, [], layout.others, metadata, schema.is_big_endian, pickled, schema.r_texts)


def _lone_tensor(message: Message) -> LoneTensor:
    if message.kind != TENSOR:
        raise FormatError("a tensor is followed by something else", found=f"message of kind {message.kind}")
    header = message.header
    found = parse_type(header.number(0, "B"), header.table(1))
    shape = tuple(extent.number(0, "q") for extent in header.tables(2))
    strides = tuple(stride for (stride,) in header.structs(3, "<q"))
    offset, nbytes = header.struct(4, "<qq") or (0, 0)
    dtype = found.dtype
    if dtype is None or found.kind not in {"int", "float"}:
        raise UnsupportedError("a tensor has another type than numbers", found=found.kind)
    itemsize = ALL_BY_NAME[dtype].itemsize
    if len(shape) > MAX_NDIM or min((*shape, *strides), default=0) < 0 or any(step % itemsize for step in strides):
        raise FormatError("no tensor has this shape and these strides", found=f"{shape!r:.100}, {strides!r:.100}")
    if strides and len(strides) != len(shape):
        raise FormatError("a tensor has more strides than dimensions, or fewer", found=f"{len(strides)}")
    if offset < 0 or nbytes < 0 or offset + nbytes > len(message.body):
        raise FormatError("a tensor is outside its message", found=f"byte {offset:,}, {nbytes:,} bytes")
    start = message.body.start + offset
    return LoneTensor(dtype, shape, strides, ByteRange(start, start + nbytes))
