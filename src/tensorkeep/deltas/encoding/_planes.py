"""Planes of mostly equal bytes, coded by deflate without a search for phrases; their size is known. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError

Bytes = npt.NDArray[np.uint8]

_STORED: Final = 0
_DEFLATED: Final = 1
_REPEATED: Final = 2

_HEAD: Final = Struct("<BI")
"""How a plane is coded, and its coded bytes."""

_SAMPLE_NBYTES: Final = 2**14
"""Bytes by which to see whether a long plane becomes smaller at all."""


def code_plane(plane: Bytes) -> bytes:
    """Encode a plane, with its head."""
    if len(plane) and (plane == plane[0]).all():
        return _HEAD.pack(_REPEATED, 1) + plane[:1].tobytes()
    if len(plane) <= 2 * _SAMPLE_NBYTES or len(_deflated(plane[:_SAMPLE_NBYTES])) < _SAMPLE_NBYTES * 0.98:
        deflated = _deflated(plane)
        if len(deflated) < len(plane):
            return _HEAD.pack(_DEFLATED, len(deflated)) + deflated
    return _HEAD.pack(_STORED, len(plane)) + plane.tobytes()


class PlaneReader:
    """Decodes the planes of a block, one after another."""

    def __init__(self, data: Buffer) -> None:
        self._rest = memoryview(data)

    def take(self, nbytes: int) -> memoryview:
        """Return the next bytes as they are."""
        if len(self._rest) < nbytes:
            raise FormatError("a block of differences is too short", expected=f"{nbytes:,} more bytes")
        taken, self._rest = self._rest[:nbytes], self._rest[nbytes:]
        return taken

    def plane(self, nbytes: int) -> Bytes:
        """Decode a plane of so many bytes."""
        coding, coded_nbytes = _HEAD.unpack(self.take(_HEAD.size))
        coded = self.take(coded_nbytes)
        if coding == _DEFLATED:
            return np.frombuffer(_inflated(coded, nbytes), np.uint8)
        if coding == _REPEATED and coded_nbytes == 1:
            return np.full(nbytes, coded[0], np.uint8)
        if coding == _STORED and coded_nbytes == nbytes:
            return np.frombuffer(coded, np.uint8)
        raise FormatError(
            "a plane of differences is malformed", found=f"coding {coding} of {coded_nbytes:,} bytes for {nbytes:,}"
        )

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if len(self._rest):
            raise FormatError("a block of differences is too long", found=f"{len(self._rest):,} more bytes")


def _deflated(plane: Bytes) -> bytes:
    from zlib_ng import zlib_ng

    # Differences have no repeated phrases, only frequent values and runs of one value.
    deflater = zlib_ng.compressobj(1, zlib_ng.DEFLATED, -zlib_ng.MAX_WBITS, strategy=zlib_ng.Z_RLE)
    return bytes(deflater.compress(plane) + deflater.flush())


def _inflated(coded: memoryview, nbytes: int) -> bytes:
    from zlib_ng import zlib_ng

    inflater = zlib_ng.decompressobj(-zlib_ng.MAX_WBITS)
    failure: Any = zlib_ng.error
    try:
        inflated: bytes = inflater.decompress(coded, nbytes + 1)
    except failure as error:
        raise FormatError("a plane of differences cannot be decompressed", found=str(error)) from None
    if len(inflated) != nbytes or not inflater.eof or inflater.unused_data:
        raise FormatError("a plane of differences has the wrong size", expected=f"{nbytes:,} bytes inflated")
    return inflated
