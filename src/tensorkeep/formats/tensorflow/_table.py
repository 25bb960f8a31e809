"""A table of sorted keys and values in blocks, as LevelDB writes it: the index of a TensorFlow checkpoint. Pure.

A footer says where the index block is, and that says where the blocks of entries are. Readers that look a key up go
by the index block and by the restart points of a block, and readers that list all keys go by neither. What only some
of them would find is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec

from tensorkeep.digests import crc32c, unmasked
from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.protobuf import parse_varint
from tensorkeep.formats.tensorflow._snappy import decompress
from tensorkeep.limits import MAX_BUNDLE_INDEX_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

MAGIC: Final = bytes.fromhex("57fb808b247547db")
"""The last bytes of a table."""

FOOTER_NBYTES: Final = 48
TRAILER_NBYTES: Final = 5
"""After each block: how it is compressed, and the CRC-32C of both."""

_PLAIN, _SNAPPY = 0, 1
_U32: Final = struct.Struct("<I")


class _Entry(msgspec.Struct, frozen=True, gc=False):
    key: bytes
    value: bytes


def is_table(source: ByteSource) -> bool:
    """Say whether a file ends like a table."""
    stop = source.nbytes
    return stop >= FOOTER_NBYTES and bytes(source.read(ByteRange(stop - len(MAGIC), stop))) == MAGIC


def read_table(source: ByteSource) -> dict[bytes, bytes]:
    """Return all keys and values in order, read at once."""
    if source.nbytes > MAX_BUNDLE_INDEX_NBYTES:
        _refuse_length(source.nbytes)
    data = bytes(source.read(ByteRange(0, source.nbytes)))
    if len(data) < FOOTER_NBYTES or not data.endswith(MAGIC):
        _refuse("the end", "a footer", "other bytes")
    blocks = _Blocks(data)
    found: dict[bytes, bytes] = {}
    last: bytes | None = None
    bound = b""
    for pointer in blocks.index():
        n_before = len(found)
        for entry in blocks.entries(pointer.value):
            if last is not None and not last < entry.key > bound:
                _refuse("the keys", "sorted keys, each once", repr(entry.key)[:100])
            found[entry.key] = entry.value
            last = entry.key
        if len(found) == n_before:
            _refuse("a block", "entries", "none")
        bound = pointer.key
        if last is not None and last > bound:
            _refuse("the index of the blocks", "a key after all of its block", repr(bound)[:100])
    return found


class _Blocks:
    """The blocks of a table."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._n_left = MAX_BUNDLE_INDEX_NBYTES
        self._stop = 0

    def index(self) -> list[_Entry]:
        """Return the last key of each block, or one after it, and where the block is."""
        footer = self._data[-FOOTER_NBYTES:]
        _, _, at = _handle(footer, 0)
        start, nbytes, _ = _handle(footer, at)
        return list(self._entries(self._content(start, nbytes)))

    def entries(self, pointer: bytes) -> Iterator[_Entry]:
        """Yield the entries of a block; blocks come in the order of the file."""
        start, nbytes, stop = _handle(pointer, 0)
        if stop != len(pointer) or start < self._stop:
            _refuse("the index of the blocks", "places one after another", f"byte {start:,}")
        self._stop = start + nbytes + TRAILER_NBYTES
        return self._entries(self._content(start, nbytes))

    def _content(self, start: int, nbytes: int) -> bytes:
        stop = start + nbytes
        if stop + TRAILER_NBYTES > len(self._data) - FOOTER_NBYTES:
            _refuse("a block", "bytes of the file", f"{start:,} to {stop:,} of {len(self._data):,}")
        stored = _U32.unpack_from(self._data, stop + 1)[0]
        actual = crc32c(memoryview(self._data)[start : stop + 1])
        if unmasked(stored) != actual:
            _refuse(f"the block at byte {start:,}", f"CRC-32C 0x{unmasked(stored):08x}", f"0x{actual:08x}")
        content = self._data[start:stop]
        compression = self._data[stop]
        if compression == _SNAPPY:
            content = decompress(content, self._n_left)
        elif compression != _PLAIN:
            _refuse("a block", "no compression, or Snappy", f"compression {compression}")
        self._spend(len(content))
        return content

    def _spend(self, nbytes: int) -> None:
        """Count bytes of blocks and keys, and refuse too many."""
        self._n_left -= nbytes
        if self._n_left < 0:
            _refuse_length(MAX_BUNDLE_INDEX_NBYTES - self._n_left)

    def _entries(self, block: bytes) -> Iterator[_Entry]:
        restarts, stop = _restarts(block)
        at = 0
        key = b""
        n_restarts = 0
        while at < stop:
            start = at
            n_shared, n_own, nbytes, at = _lengths(block, at)
            if n_shared > len(key) or at + n_own + nbytes > stop:
                _refuse("an entry", "lengths within its block", f"{n_shared}, {n_own} and {nbytes}")
            if n_restarts < len(restarts) and restarts[n_restarts] == start:
                n_restarts += 1
                if n_shared:
                    _refuse("a restart point", "a whole key", f"{n_shared} shared bytes")
            key = key[:n_shared] + block[at : at + n_own]
            self._spend(len(key))
            at += n_own
            yield _Entry(key, block[at : at + nbytes])
            at += nbytes
        if at and n_restarts != len(restarts):
            _refuse("the restart points", "places of entries in order", f"{n_restarts} of {len(restarts)}")


def _restarts(block: bytes) -> tuple[tuple[int, ...], int]:
    """Return where whole keys are, and where the entries stop."""
    n_restarts = _U32.unpack_from(block, len(block) - 4)[0] if len(block) >= 4 else 0
    stop = len(block) - 4 - 4 * n_restarts
    if not n_restarts or stop < 0:
        _refuse("a block", "restart points", f"{n_restarts:,} in {len(block):,} bytes")
    restarts = struct.unpack_from(f"<{n_restarts}I", block, stop)
    if restarts[0] != 0:
        _refuse("the restart points", "the first entry", f"byte {restarts[0]:,}")
    return restarts, stop


def _lengths(block: bytes, at: int) -> tuple[int, int, int, int]:
    """Return the three lengths before an entry, and where its key begins."""
    if at + 3 <= len(block) and (n_shared := block[at]) | (n_own := block[at + 1]) | (nbytes := block[at + 2]) < 0x80:
        return n_shared, n_own, nbytes, at + 3
    n_shared, at = _varint(block, at)
    n_own, at = _varint(block, at)
    nbytes, at = _varint(block, at)
    return n_shared, n_own, nbytes, at


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the place and size of a block, and what follows them."""
    start, at = _varint(data, at)
    nbytes, at = _varint(data, at)
    return start, nbytes, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        return parse_varint(data, at)
    except IndexError:
        _refuse("a length", "a number", "the end")


def _refuse(what: str, expected: str, found: str) -> NoReturn:
    raise FormatError(
        f"{what} of the index is not as TensorFlow writes it",
        expected=expected,
        found=found,
        hint="If the file was copied, get it again",
    )


def _refuse_length(nbytes: int) -> NoReturn:
    raise LimitError(
        "the index is too long",
        expected=f"at most {MAX_BUNDLE_INDEX_NBYTES:,} bytes",
        found=f"{nbytes:,}",
    )
