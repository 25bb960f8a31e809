"""One node of a tree: keys with their values, or with the nodes below. Pure.

Keys lack what all keys of the node begin with; the node above says how much that is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.ocdbt._columns import Columns, joined_texts, refuse_too_many, refuse_unordered
from tensorkeep.formats.ocdbt._envelope import content_of
from tensorkeep.formats.ocdbt._files import DataFile, file_at, read_files
from tensorkeep.formats.ocdbt._manifest import span_of
from tensorkeep.transport import ByteRange

_MAGIC: Final = bytes.fromhex("0cdb20de")
_INLINE, _ELSEWHERE = 0, 1


class Child(msgspec.Struct, frozen=True):
    """A node below.

    Attributes:
        file: Where it is.
        span: Its bytes there.
        prefix: What all its keys begin with.
        least: A key that none of its keys is less than.
    """

    file: DataFile
    span: ByteRange
    prefix: bytes
    least: bytes


class Node(msgspec.Struct, frozen=True):
    """A node; it has values or children.

    Attributes:
        keys: All keys, whole.
        values: For each key its value, or where that is.
        children: For each key the node whose keys begin there.
        nbytes: Bytes of the node when unpacked.
    """

    keys: list[bytes]
    values: list[bytes | tuple[DataFile, ByteRange]]
    children: list[Child]
    nbytes: int


def parse_node(data: bytes, base: str, prefix: bytes, height: int, most_nbytes: int) -> Node:
    """Parse a node that is `height` levels above the values, and at most so many bytes long."""
    content = content_of(data, _MAGIC, most_nbytes)
    columns = Columns(content)
    found = columns.byte()
    if found != height:
        raise FormatError(
            "a node of the database is at another height", expected=f"{height} levels above values", found=str(found)
        )
    files = read_files(columns, base)
    n_rows = columns.count()
    if not n_rows:
        raise FormatError("a node of the database is empty")
    refuse_too_many(n_rows, len(prefix))
    n_shared = columns.numbers(n_rows - 1)
    lengths = columns.numbers(n_rows)
    n_common = columns.numbers(n_rows) if height else []
    own_keys = joined_texts(n_shared, columns.slices(lengths))
    refuse_unordered(own_keys)
    keys = [prefix + key for key in own_keys] if prefix else own_keys
    children = _children(columns, files, keys, [len(prefix) + n for n in n_common]) if height else []
    values = [] if height else _values(columns, files, n_rows)
    columns.end()
    return Node(keys, values, children, len(content))


def _children(columns: Columns, files: list[DataFile], keys: list[bytes], n_common: list[int]) -> list[Child]:
    numbers, starts, lengths = (columns.numbers(len(keys)) for _ in range(3))
    for _ in range(3):  # how much is below each: keys, bytes of nodes, bytes of values
        columns.numbers(len(keys))
    if any(n > len(key) for n, key in zip(n_common, keys, strict=True)):
        raise FormatError("the keys of a node of the database share more than the first one has")
    return [
        Child(file_at(files, number), span_of(start, nbytes), key[:n], key)
        for key, n, number, start, nbytes in zip(keys, n_common, numbers, starts, lengths, strict=True)
    ]


def _values(columns: Columns, files: list[DataFile], n_rows: int) -> list[bytes | tuple[DataFile, ByteRange]]:
    lengths = columns.numbers(n_rows)
    kinds = columns.numbers(n_rows)
    if max(kinds) > _ELSEWHERE:
        raise FormatError("a value of the database is of an unknown kind", found=f"kind {max(kinds)}")
    n_elsewhere = sum(kinds)
    places = zip(columns.numbers(n_elsewhere), columns.numbers(n_elsewhere), strict=True)
    return [
        columns.take(nbytes) if kind == _INLINE else _place(files, *next(places), nbytes)
        for nbytes, kind in zip(lengths, kinds, strict=True)
    ]


def _place(files: list[DataFile], number: int, start: int, nbytes: int) -> tuple[DataFile, ByteRange]:
    return file_at(files, number), span_of(start, nbytes)
