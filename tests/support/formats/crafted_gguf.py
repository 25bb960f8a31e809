"""GGUF headers byte by byte, so that tests can write what no library would."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

TYPES = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "string": 8,
    "array": 9,
    "u64": 10,
    "i64": 11,
    "f64": 12,
}
CODES = dict(zip("u8 i8 u16 i16 u32 i32 f32 bool u64 i64 f64".split(), "BbHhIifBQqd", strict=True))  # noqa: SIM905
ALIGNMENT = 32


def text(value: str | bytes, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(f"{order}Q", len(raw)) + raw


def value(type_: str, content: Any, order: str = "<") -> bytes:
    """Return a value without its type; `"array:u32"` for arrays, `"array:array:u32"` for nested ones."""
    if type_ == "string":
        return text(content, order)
    if type_.startswith("array:"):
        inner = type_.removeprefix("array:")
        head = struct.pack(f"{order}IQ", TYPES[inner.partition(":")[0]], len(content))
        return head + b"".join(value(inner, item, order) for item in content)
    return struct.pack(order + CODES[type_], content)


def entry(key: str | bytes, type_: str, content: Any, order: str = "<") -> bytes:
    number = TYPES[type_.partition(":")[0]]
    return text(key, order) + struct.pack(f"{order}I", number) + value(type_, content, order)


def info(name: str | bytes, shape: Sequence[int], number: int, start: int, order: str = "<") -> bytes:
    """Return what the header says of a tensor; the shape has the slowest dimension first, as in NumPy."""
    extents = struct.pack(f"{order}I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name, order) + extents + struct.pack(f"{order}IQ", number, start)


def crafted(
    entries: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_entries: int | None = None,
    n_infos: int | None = None,
    order: str = "<",
    alignment: int = ALIGNMENT,
) -> bytes:
    counts = (len(infos) if n_infos is None else n_infos, len(entries) if n_entries is None else n_entries)
    head = b"GGUF" + struct.pack(f"{order}IQQ", version, *counts) + b"".join(entries) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data
