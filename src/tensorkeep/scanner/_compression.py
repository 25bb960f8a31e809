"""Whether a file or member is compressed as a whole, so that what it holds cannot be scanned.

Signatures are short, and tensors can begin with any bytes. So a short signature counts only if the bytes after it can
be decompressed.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from tensorkeep.errors import LimitError
from tensorkeep.scanner._content import HEAD_NBYTES, Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import forms_of

try:
    import lzma
except ImportError:  # some builds of Python come without it
    lzma = None  # type: ignore[assignment]

ZSTANDARD: Final = "a Zstandard archive"

_SIGNATURES: Final = (
    (rb"\x1f\x8b\x08", "a gzip archive"),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a bzip2 archive"),
    (rb"\xfd7zXZ\x00", "an xz archive"),
    (rb"LZIP[\x00\x01]", "an lzip archive"),
    (rb"[\x1e\x22-\x28]\xb5\x2f\xfd", ZSTANDARD),
    (rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18", "an LZ4 archive"),
    (rb"[\x50-\x5f]\x2a\x4d\x18", "a Zstandard or LZ4 archive"),
    (rb"\xff\x06\x00\x00sNaPpY", "a Snappy archive"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (rb"Rar!\x1a\x07", "a RAR archive"),
)
_COMPRESSED: Final = tuple((re.compile(signature, re.DOTALL).match, what) for signature, what in _SIGNATURES)

_JOBLIB: Final = slice(2, 21)
"""After `ZF`, joblib before 0.10 wrote the size as a hexadecimal number, padded with spaces."""

_LZMA_NBYTES: Final = 14
_LZMA_SIZE: Final = slice(5, 13)
_UNKNOWN_SIZE: Final = 2**64 - 1
_MAX_LZMA_PROPERTIES: Final = 224
_MAX_LZMA_NBYTES: Final = 2**38
"""Largest size that liblzma believes in a header without a signature."""

_EMPTY_LZMA_NBYTES: Final = 18
"""This many zeros are an LZMA stream that holds nothing; another may follow."""

_MAX_EMPTY_STREAMS: Final = 10_000
_ENOUGH_NBYTES: Final = 512
"""How many decompressed bytes tell what they are."""


def report_compression(content: Content, log: FindingLog, *, but: str | None = None) -> None:
    """Report content that is compressed as a whole, unless it is in one way that is expected."""
    with log.recording_errors(content):
        compression = _compression_of(content, content.head()) if content.nbytes else None
        if compression not in {None, but}:
            log.add("unreadable", f"it is {compression}", content)


def _compression_of(content: Content, head: bytes) -> str | None:
    """Return how all of the bytes are compressed, given the first ones; None if they are not."""
    for matches, what in _COMPRESSED:
        if matches(head):
            return what
    if head.startswith(b"ZF") and _is_hexadecimal(head[_JOBLIB]):
        return "compressed by joblib before 0.10"
    if _begins_zlib(head) and _is_zlib(head, content.nbytes):
        return "compressed by zlib"
    return "an LZMA archive" if _is_lzma(content, head) else None


def _is_hexadecimal(text: bytes) -> bool:
    try:
        int(text, 16)  # as joblib does, so with signs, spaces and underscores
    except ValueError:
        return False
    return True


def _begins_zlib(head: bytes) -> bool:
    """Say whether two bytes are a header of zlib: deflate, a window of up to 32 KiB, no dictionary, a checksum."""
    first, second = head[:2] if len(head) > 1 else (0, 0)
    return first & 15 == 8 and first >> 4 < 8 and not second & 32 and not (first << 8 | second) % 31


def _is_zlib(head: bytes, nbytes: int) -> bool:
    """Say whether bytes can be inflated as far as they are known, or to the start of some file."""
    inflater = zlib.decompressobj()
    output = bytearray()
    try:
        for start in range(len(head)):  # byte by byte, since a reader may get all that comes before an error
            output += inflater.decompress(head[start : start + 1])
            if inflater.eof or len(output) > HEAD_NBYTES:
                return True
    except zlib.error:
        return _begins_a_file(output)
    return nbytes > len(head) or _begins_a_file(output)


def _begins_a_file(output: bytearray, *, is_whole: bool = True) -> bool:
    return bool(forms_of(bytes(output), len(output) + (not is_whole)))


def _is_lzma(content: Content, head: bytes) -> bool:
    """Say whether streams of LZMA, of which the first may hold nothing, decompress to the start of some file."""
    rest = content if any(head) else content.after_zeros(_EMPTY_LZMA_NBYTES)
    output = bytearray()
    for _ in range(_MAX_EMPTY_STREAMS):
        size = _lzma_size(rest.read(min(rest.nbytes, _LZMA_NBYTES)))
        if size is None:
            return _begins_a_file(output)
        n_read = _read_lzma(rest, output)
        is_certain = size == _UNKNOWN_SIZE and len(output) >= _ENOUGH_NBYTES
        if is_certain or n_read is None or len(output) >= _ENOUGH_NBYTES:
            return is_certain or _begins_a_file(output, is_whole=n_read is None)
        rest = rest.part(n_read).after_zeros(_EMPTY_LZMA_NBYTES)
    return True


def _lzma_size(start: bytes) -> int | None:
    """Return the size in a header of LZMA, which has no signature; None if the bytes cannot be one."""
    size = int.from_bytes(start[_LZMA_SIZE], "little")
    is_size = size < _MAX_LZMA_NBYTES or size == _UNKNOWN_SIZE
    is_one = len(start) == _LZMA_NBYTES and start[0] <= _MAX_LZMA_PROPERTIES and is_size and not start[-1]
    return size if is_one else None


def _read_lzma(content: Content, output: bytearray) -> int | None:
    """Decompress enough of a stream; return how many bytes that took, or None if there is an error first."""
    if lzma is None:
        return None  # type: ignore[unreachable]
    stream = lzma.LZMADecompressor()
    try:
        for start in range(0, content.nbytes, HEAD_NBYTES):
            data = content.part(start).head()
            for step in range(len(data)):
                output += stream.decompress(data[step : step + 1])
                if stream.eof or len(output) >= _ENOUGH_NBYTES:
                    return start + step + 1
    except lzma.LZMAError:
        return None
    except MemoryError:
        raise LimitError("the LZMA archive asks for too much memory") from None
    return None
