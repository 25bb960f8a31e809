"""Indexes of TensorFlow's checkpoints byte by byte, so that tests can write what TensorFlow would not."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from tensorkeep.digests import crc32c, masked

MAGIC = bytes.fromhex("57fb808b247547db")
NUMBERS = {"float32": 1, "int32": 3, "string": 7, "int64": 9, "resource": 20, "variant": 21}


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """Return a message; a number of field 6 is written as 4 bytes, as the CRC of a tensor is."""
    found = b""
    for number, value in fields:
        if isinstance(value, bytes):
            found += varint(number << 3 | 2) + varint(len(value)) + value
        elif number == 6:
            found += varint(number << 3 | 5) + struct.pack("<I", value)
        else:
            found += varint(number << 3) + varint(value)
    return found


def header(n_shards: int = 1, *, byte_order: int = 0) -> bytes:
    return message((1, n_shards), (2, byte_order), (3, message((1, 1))))


def shape(*extents: int) -> bytes:
    return message(*((2, message((1, extent))) for extent in extents))


def entry(
    dtype: str | int,
    extents: Sequence[int],
    start: int,
    data: bytes,
    *,
    shard: int = 0,
    nbytes: int | None = None,
    slices: Iterable[bytes] = (),
) -> bytes:
    """Return the entry of a tensor; `data` are its bytes, which are summed."""
    fields: list[tuple[int, int | bytes]] = [(1, dtype if isinstance(dtype, int) else NUMBERS[dtype])]
    fields += [(2, shape(*extents)), (3, shard), (4, start), (5, len(data) if nbytes is None else nbytes)]
    return message(*fields, (6, masked(crc32c(data))), *((7, each) for each in slices))


def row(key: bytes, value: bytes, *, n_shared: int = 0) -> bytes:
    own = key[n_shared:]
    return varint(n_shared) + varint(len(own)) + varint(len(value)) + own + value


def n_common(first: bytes, second: bytes) -> int:
    pairs = zip(first, second, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def block(entries: Sequence[tuple[bytes, bytes]], *, interval: int = 16) -> bytes:
    """Return a block without its trailer: keys share their beginnings, except each `interval`-th one."""
    found, restarts, last = b"", [], b""
    for place, (key, value) in enumerate(entries):
        if place % interval == 0:
            restarts.append(len(found))
            last = b""
        found += row(key, value, n_shared=n_common(last, key))
        last = key
    return with_restarts(found, restarts or [0])


def with_restarts(rows: bytes, restarts: Sequence[int], *, count: int | None = None) -> bytes:
    return rows + struct.pack(f"<{len(restarts)}I", *restarts) + struct.pack("<I", count or len(restarts))


def stored(content: bytes, *, compression: int = 0, flip: int = 0) -> bytes:
    """Return a block with its trailer."""
    body = pa.compress(content, "snappy", asbytes=True) if compression == 1 else content
    body += bytes([compression])
    return body + struct.pack("<I", masked(crc32c(body)) ^ flip)


def handle(start: int, nbytes: int) -> bytes:
    return varint(start) + varint(nbytes)


def file_of(blocks: Sequence[tuple[bytes, bytes]], *, compression: int = 0) -> bytes:
    """Return a table of blocks, each with the last of its keys."""
    data = b""
    pointers = []
    for last, content in blocks:
        whole = stored(content, compression=compression)
        pointers.append((last, handle(len(data), len(whole) - 5)))
        data += whole
    return with_footer(data, block(pointers, interval=1))


def with_footer(data: bytes, index: bytes) -> bytes:
    """Return a table of blocks that are stored already, and the block that says where they are."""
    meta = stored(block([]))
    whole = stored(index)
    places = handle(len(data), len(meta) - 5) + handle(len(data + meta), len(whole) - 5)
    return data + meta + whole + places.ljust(40, b"\0") + MAGIC


def table(entries: Mapping[bytes, bytes], *, compression: int = 0, n_per_block: int = 100) -> bytes:
    """Return a table as TensorFlow writes it."""
    rows = list(entries.items())
    parts = [rows[start : start + n_per_block] for start in range(0, len(rows), n_per_block)]
    return file_of([(part[-1][0], block(part)) for part in parts], compression=compression)


def bundle(
    directory: Path,
    arrays: Mapping[str, np.ndarray],
    *,
    compression: int = 0,
    n_per_block: int = 100,
    is_big_endian: bool = False,
) -> Path:
    """Write a checkpoint of float32, int32 and int64 arrays, and return the path by which TensorFlow names it."""
    entries = {b"": header(byte_order=int(is_big_endian))}
    data = b""
    for name, array in sorted(arrays.items()):
        raw = array.astype(array.dtype.newbyteorder(">" if is_big_endian else "<")).tobytes()
        entries[name.encode()] = entry(array.dtype.name, array.shape, len(data), raw)
        data += raw
    return written(directory, table(entries, compression=compression, n_per_block=n_per_block), data)


def written(directory: Path, index: bytes, *shards: bytes) -> Path:
    path = directory / "crafted"
    path.with_name("crafted.index").write_bytes(index)
    for place, shard in enumerate(shards):
        path.with_name(f"crafted.data-{place:05d}-of-{len(shards):05d}").write_bytes(shard)
    return path


def extent(start: int | None, length: int | None) -> bytes:
    """Return one dimension of a part; None for all of it."""
    parts = [(number, each) for number, each in ((1, start), (2, length)) if each is not None]
    return message((1, message(*parts)))


def part_key(name: str, *extents: tuple[int, int]) -> bytes:
    """Return the key of a part, for numbers from 0 to 63 and the length -1, which means all."""
    codes = {-1: b"\x7f"} | {number: bytes([0x80 | number]) for number in range(64)}
    numbers = b"".join(codes[number] for each in extents for number in each)
    return b"\0" + name.encode() + b"\0\1" + b"\1" + bytes([len(extents)]) + numbers


def parted(
    directory: Path, extents: tuple[int, ...], *parts: tuple[tuple[int, int], ...], doubled: bool = False
) -> Path:
    """Write a checkpoint of one int32 tensor `w`, in parts whose elements are 0, 1, 2 ... each."""
    described, entries, data = [], {}, b""
    for each in parts:
        own = tuple(whole if length < 0 else length for whole, (_, length) in zip(extents, each, strict=True))
        raw = np.arange(int(np.prod(own)), dtype=np.int32).tobytes()
        entries[part_key("w", *each)] = entry("int32", own, len(data), raw)
        data += raw
        described.append(b"".join(extent(*((None, None) if length < 0 else (at, length))) for at, length in each))
    described += described[:1] if doubled else []
    whole = message((1, NUMBERS["int32"]), (2, shape(*extents)), *((7, each) for each in described))
    rows = {b"": header(), **dict(sorted(entries.items())), b"w": whole}
    assert all(first < second for first, second in pairwise(rows))
    return written(directory, table(rows), data)
