"""Zstandard, unpacked into bounded memory by the standard library (Python 3.14) or the package `zstandard`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError, importing


def unpack_zstd(data: bytes | memoryview[int], most_nbytes: int) -> bytes:
    """Return what one frame holds, and refuse more than `most_nbytes` bytes before they take memory."""
    found = _unpack(data, most_nbytes)
    if len(found) > most_nbytes:
        _refuse_longer(most_nbytes)
    return found


def unpack_zstd_into(pieces: Iterable[Buffer], into: memoryview[int]) -> None:
    """Fill memory with what one frame holds, which comes in pieces; refuse less and more."""
    reader, error = _reader(_Pieces(pieces))
    n_filled = 0
    try:
        while n_filled < len(into) and (n_read := reader.readinto(into[n_filled:])):
            n_filled += n_read
        is_longer = reader.read(1)
    except error as cause:
        _refuse(str(cause))
    if n_filled < len(into):
        _refuse(f"{n_filled:,} of {len(into):,} bytes")
    if is_longer:
        _refuse_longer(len(into))


class _Pieces(io.RawIOBase):
    """Bytes that come in pieces, as a file."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece).cast("B")
        nbytes = min(len(into), len(self._rest))
        into[:nbytes] = self._rest[:nbytes]
        self._rest = self._rest[nbytes:]
        return nbytes


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

    def _reader(packed: _Pieces) -> tuple[Any, type[Exception]]:
        """Return a file of what is unpacked, and the error of one that is damaged."""
        from compression import zstd

        return zstd.ZstdFile(packed), zstd.ZstdError

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

    def _reader(packed: _Pieces) -> tuple[Any, type[Exception]]:
        """Return a file of what is unpacked, and the error of one that is damaged."""
        with importing(zstandard="zstandard"):
            import zstandard
        return zstandard.ZstdDecompressor().stream_reader(io.BufferedReader(packed)), zstandard.ZstdError


def _refuse(found: str) -> NoReturn:
    raise FormatError("the compressed data are damaged", found=found)


def _refuse_longer(most_nbytes: int) -> NoReturn:
    raise FormatError(
        "the compressed data hold more than they may", expected=f"at most {most_nbytes:,} bytes", found="more"
    )
