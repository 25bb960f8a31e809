"""The messages of a file or stream: each is a short description and a body of buffers.

A file has a footer that says where they are; in a stream, each must be read to find the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.arrow._flatbuffers import Table
from tensorkeep.limits import MAX_ARROW_MESSAGES, MAX_HEADER_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

MAGIC: Final = b"ARROW1"
CONTINUED: Final = b"\xff\xff\xff\xff"
"""First bytes of a message, before its length; they were missing before Arrow 0.15."""

SCHEMA: Final = 1
DICTIONARY: Final = 2
BATCH: Final = 3
TENSOR: Final = 4
SPARSE_TENSOR: Final = 5

_TAIL_NBYTES: Final = 4 + len(MAGIC)
_AHEAD_NBYTES: Final = 2**16
_BLOCK: Final = "<qi4xq"


class Message(msgspec.Struct, frozen=True):
    """One message.

    Attributes:
        kind: Number of what it describes.
        header: What it describes.
        nbytes: Bytes of the description.
        body: Where its buffers are.
    """

    kind: int
    header: Table
    nbytes: int
    body: ByteRange


class Footer(msgspec.Struct, frozen=True):
    """The end of a file.

    Attributes:
        table: Its fields.
        nbytes: Its bytes.
        n_dictionaries: How many messages are dictionaries.
        messages: Where the messages of batches are, each with the bytes before its body.
    """

    table: Table
    nbytes: int
    n_dictionaries: int
    messages: list[tuple[ByteRange, int]]


def is_message(source: ByteSource) -> bool:
    """Say whether a file begins with a message."""
    head = bytes(source.read(ByteRange(0, min(8, source.nbytes))))
    return head.startswith(CONTINUED) and 0 < int.from_bytes(head[4:], "little") <= source.nbytes - 8


def read_footer(source: ByteSource) -> Footer:
    """Read the footer of a file."""
    n_read = min(source.nbytes, max(_AHEAD_NBYTES, source.gap_nbytes))
    tail = bytes(source.read(ByteRange(source.nbytes - n_read, source.nbytes)))
    if not tail.endswith(MAGIC) or source.nbytes < 8 + _TAIL_NBYTES:
        raise FormatError(
            "the file has no end",
            expected=f"{MAGIC!r} at the end",
            found=f"{tail[-len(MAGIC) :]!r}",
            hint="It was not closed, or cut off: write it or get it again",
        )
    nbytes = int.from_bytes(tail[-_TAIL_NBYTES : -len(MAGIC)], "little")
    start = source.nbytes - _TAIL_NBYTES - nbytes
    if nbytes > MAX_HEADER_NBYTES:
        raise LimitError("the footer is too long", expected=f"at most {MAX_HEADER_NBYTES:,}", found=f"{nbytes:,}")
    if start < 8:
        raise FormatError("the footer is longer than the file", found=f"{nbytes:,} bytes")
    data = tail[-_TAIL_NBYTES - nbytes : -_TAIL_NBYTES]
    if len(data) < nbytes:
        data = bytes(source.read(ByteRange(start, start + nbytes)))
    table = Table.root(data)
    dictionaries, batches = table.structs(2, _BLOCK), table.structs(3, _BLOCK)
    spans = [_span_of(*block, stop=start) for block in (*dictionaries, *batches)]
    ordered = sorted((span.start, span.stop) for span, _ in spans)
    if any(stop > start for (_, stop), (start, _) in pairwise(ordered)):
        raise FormatError("two messages overlap")
    return Footer(table, nbytes, len(dictionaries), spans[len(dictionaries) :])


def _span_of(start: int, metadata_nbytes: int, body_nbytes: int, *, stop: int) -> tuple[ByteRange, int]:
    if start < 0 or metadata_nbytes < 8 or body_nbytes < 0 or start + metadata_nbytes + body_nbytes > stop:
        raise FormatError("a message is outside the file", found=f"byte {start:,}, {body_nbytes:,} bytes")
    return ByteRange(start, start + metadata_nbytes + body_nbytes), metadata_nbytes


def read_batches(source: ByteSource, footer: Footer) -> Iterator[Message]:
    """Read the messages of all batches of a file at once."""
    if len(footer.messages) > MAX_ARROW_MESSAGES:
        raise LimitError("the file has too many batches", expected=f"at most {MAX_ARROW_MESSAGES:,}")
    described = sum(nbytes for _, nbytes in footer.messages)
    if described > MAX_HEADER_NBYTES:
        raise LimitError("the descriptions of batches are too long", expected=f"at most {MAX_HEADER_NBYTES:,} bytes")
    parts = [(span.start, bytearray(nbytes)) for span, nbytes in footer.messages]
    source.read_into([(start, memoryview(data)) for start, data in parts])
    for (span, nbytes), (_, data) in zip(footer.messages, parts, strict=True):
        skipped = 8 if data.startswith(CONTINUED) else 4
        message = _parse(bytes(data[skipped:]), ByteRange(span.start + nbytes, span.stop))
        if message.kind != BATCH:
            raise FormatError("the footer points to something else than a batch", found=f"byte {span.start:,}")
        yield message


def read_stream(source: ByteSource) -> Iterator[Message]:
    """Read the messages of a stream one after another."""
    position, ahead = 0, _Ahead(source)
    for _ in range(MAX_ARROW_MESSAGES):
        if source.nbytes - position < 8:  # the mark of the end may be missing
            return
        first, second = struct.unpack("<II", ahead.read(position, 8))
        nbytes, start = (second, position + 8) if first == 0xFFFF_FFFF else (first, position + 4)
        if not nbytes:
            return
        if nbytes > MAX_HEADER_NBYTES:
            raise LimitError("a message is too long", expected=f"at most {MAX_HEADER_NBYTES:,}", found=f"{nbytes:,}")
        message = _parse(ahead.read(start, nbytes), ByteRange(start + nbytes, source.nbytes))
        yield message
        position = message.body.stop
    raise LimitError("the stream has too many messages", expected=f"at most {MAX_ARROW_MESSAGES:,}")


def _parse(data: bytes, body: ByteRange) -> Message:
    """Parse a message whose body begins where `body` does, and ends there or before."""
    table = Table.root(data)
    header, body_nbytes = table.table(2), table.number(3, "q")
    if header is None:
        raise FormatError("a message describes nothing", found=f"before byte {body.start:,}")
    if not 0 <= body_nbytes <= len(body):
        raise FormatError(
            "the body of a message is longer than there is room for",
            expected=f"at most {len(body):,} bytes",
            found=f"{body_nbytes:,}",
            hint="If the file was cut off, get it again",
        )
    return Message(table.number(1, "B"), header, len(data), ByteRange(body.start, body.start + body_nbytes))


class _Ahead:
    """Reads a source in pieces of some length."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._nbytes = max(4096, source.gap_nbytes)
        self._data = b""
        self._start = 0

    def read(self, start: int, nbytes: int) -> bytes:
        stop = start + nbytes
        if stop > self._source.nbytes:
            raise FormatError(
                "the stream ends within a message",
                expected=f"at least {stop:,} bytes",
                found=f"{self._source.nbytes:,}",
                hint="If it was cut off, get it again",
            )
        if not self._start <= start <= stop <= self._start + len(self._data):
            more = ByteRange(start, min(max(stop, start + self._nbytes), self._source.nbytes))
            self._data, self._start = bytes(self._source.read(more)), start
        return self._data[start - self._start : stop - self._start]
