"""Zstandard, unpacked into bounded memory by the standard library (Python 3.14) or the package `zstandard`."""

from __future__ import annotations

import sys
from typing import NoReturn

from tensorkeep.errors import FormatError, importing


def unpack_zstd(data: bytes | memoryview[int], most_nbytes: int) -> bytes:
    """Return what one frame holds, and refuse more than `most_nbytes` bytes before they take memory."""
    found = _unpack(data, most_nbytes)
    if len(found) > most_nbytes:
        _refuse_longer(most_nbytes)
    return found


if sys.version_info >= (3, 14):

    def _unpack(data: bytes | memoryview[int], most_nbytes: int) -> bytes:
        from compression import zstd

        decompressor = zstd.ZstdDecompressor()
        try:
            found = decompressor.decompress(data, max_length=most_nbytes + 1)
        except zstd.ZstdError as error:
            _refuse(str(error))
        if len(found) <= most_nbytes and not decompressor.eof:
            _refuse("the end is missing")
        return found

else:

    def _unpack(data: bytes | memoryview[int], most_nbytes: int) -> bytes:
        with importing(zstandard="zstandard"):
            import zstandard
        decompressor = zstandard.ZstdDecompressor()
        try:
            declared: int = zstandard.frame_content_size(data)
            if declared > most_nbytes:
                _refuse_longer(most_nbytes)
            if declared >= 0:
                whole: bytes = decompressor.decompress(data)
                return whole
            found: bytes = decompressor.stream_reader(data).read(most_nbytes + 1)
        except zstandard.ZstdError as error:
            _refuse(str(error))
        return found


def _refuse(found: str) -> NoReturn:
    raise FormatError("the compressed data are damaged", found=found)


def _refuse_longer(most_nbytes: int) -> NoReturn:
    raise FormatError(
        "the compressed data hold more than they may", expected=f"at most {most_nbytes:,} bytes", found="more"
    )
