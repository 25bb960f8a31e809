"""Flax's files: nested data as MessagePack, with arrays as extensions of it.

Only the lengths before arrays are read; their bytes are skipped, and are later read where they lie.

- `_values`: what a file consists of besides plain data: `Array`, `Extension`.
- `_cursor`: the position in a file, with a read-ahead.
- `_numpy`: the payload of an extension that holds an array.
- `_walk`: bytes to nested values, in one pass without recursion.
- `_chunks`: arrays over a gigabyte, which Flax cuts into chunks.
- `_nested`: nested data with other leaves, or cut to a part.
- `_read`: `read_document`: nested values whose arrays have names, and `merged` for several files.
- `_emit`: nested arrays to what a file consists of.
- `_recognize`: whether bytes are such a file; nothing at its start says so.
"""

from tensorkeep.formats.msgpack._emit import ARRAY_DTYPES, Elements, Emitted, emit_nested, name_problem
from tensorkeep.formats.msgpack._nested import LEFT_OUT, part_of, rebuilt
from tensorkeep.formats.msgpack._read import Document, merged, read_document
from tensorkeep.formats.msgpack._recognize import is_msgpack
from tensorkeep.formats.msgpack._values import Array, Extension

__all__ = [
    "ARRAY_DTYPES",
    "LEFT_OUT",
    "Array",
    "Document",
    "Elements",
    "Emitted",
    "Extension",
    "emit_nested",
    "is_msgpack",
    "merged",
    "name_problem",
    "part_of",
    "read_document",
    "rebuilt",
]
