"""LZ4 frames: blocks of literal bytes and of matches in what was written before.

The package `lz4` decodes them if it is installed. If not, Python does, a hundred times slower, and compares no
checksums: they are of a hash that it does not have.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NoReturn

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError

_MAGIC: Final = b"\x04\x22\x4d\x18"
_VERSION: Final = 0x40
_HAS_BLOCK_SUMS, _HAS_SIZE, _HAS_DICTIONARY = 0x10, 0x08, 0x01
_STORED: Final = 0x8000_0000
_MIN_MATCH: Final = 4
_MAX_RATIO: Final = 255


def decode_lz4(frame: bytes, nbytes: int) -> Buffer:
    """Return what a frame holds, which must be so many bytes."""
    library = _library()
    return decode_in_python(frame, nbytes) if library is None else decode_by_library(library, frame, nbytes)


@cache
def _library() -> Any:
    """Return the module that decodes frames; None if it is not installed."""
    try:
        import lz4.frame
    except ModuleNotFoundError:
        return None
    return lz4.frame


def decode_by_library(library: Any, frame: bytes, nbytes: int) -> Buffer:
    """Let the package decode a frame, into no more memory than it should take: it allocates all of it at once."""
    if nbytes > _MAX_RATIO * len(frame):
        _refuse("is too short for what it should hold", f"{len(frame):,} bytes for {nbytes:,}")
    decompressor = library.LZ4FrameDecompressor()
    try:
        found: bytes = decompressor.decompress(frame, max_length=nbytes + 1)
    except RuntimeError as error:
        _refuse("is damaged", str(error))
    if len(found) != nbytes or not decompressor.eof:
        at_most = "" if decompressor.eof else " or more"
        _refuse("has another length, or no end", f"{len(found):,} bytes{at_most}, not {nbytes:,}")
    return found


def decode_in_python(frame: bytes, nbytes: int) -> bytearray:
    """Decode a frame."""
    flags = frame[4] if len(frame) > 7 else 0
    if not frame.startswith(_MAGIC) or flags & 0xC0 != _VERSION or flags & _HAS_DICTIONARY:
        _refuse("is not one that Arrow writes", f"{frame[:7].hex(' ')}")
    position = 7 + (8 if flags & _HAS_SIZE else 0)
    out = bytearray()
    while True:
        if position + 4 > len(frame):
            _refuse("ends early", f"{len(frame):,} bytes")
        size = int.from_bytes(frame[position : position + 4], "little")
        position += 4
        if not size:
            break
        stop = position + (size & ~_STORED)
        if stop > len(frame):
            _refuse("ends within a block", f"{len(frame):,} bytes")
        block = frame[position:stop]
        if size & _STORED:
            out += block[: nbytes + 1 - len(out)]
        else:
            _decode_block(block, out, nbytes)
        position = stop + (4 if flags & _HAS_BLOCK_SUMS else 0)
    if len(out) != nbytes:
        _refuse("has another length", f"{len(out):,} bytes, not {nbytes:,}")
    return out


def _decode_block(block: bytes, out: bytearray, limit: int) -> None:
    """Append what a block holds, up to a limit of bytes in all."""
    position, stop = 0, len(block)
    try:
        while True:
            token = block[position]
            position += 1
            length = token >> 4
            if length == 15:
                length, position = _longer(block, length, position)
            if length:
                literals = block[position : position + length]
                if len(literals) < length or len(out) + length > limit:
                    _refuse("holds more than it should", f"over {limit:,} bytes")
                out += literals
                position += length
            if position == stop:
                return
            offset = block[position] | block[position + 1] << 8
            position += 2
            length = token & 15
            if length == 15:
                length, position = _longer(block, length, position)
            length += _MIN_MATCH
            start = len(out) - offset
            if not offset or start < 0 or len(out) + length > limit:
                _refuse("refers to bytes that are not there, or holds more than it should", f"an offset of {offset}")
            if offset >= length:
                out += out[start : start + length]
            else:
                out += (out[start:] * (length // offset + 1))[:length]
    except IndexError:
        _refuse("has a block that ends within a match", f"{stop:,} bytes")


def _longer(block: bytes, length: int, position: int) -> tuple[int, int]:
    """Return a length that goes over more bytes, and the position after them."""
    byte = 255
    while byte == 255:
        byte = block[position]
        position += 1
        length += byte
    return length, position


def _refuse(problem: str, found: str) -> NoReturn:
    raise FormatError(f"an LZ4 frame {problem}", found=found)
