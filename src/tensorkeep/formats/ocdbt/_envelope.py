"""What is around each structure of a database: magic, length, version, compression, and a CRC-32C. Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.digests import crc32c
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError
from tensorkeep.formats._zstd import unpack_zstd
from tensorkeep.formats.protobuf import parse_varint

_LENGTH_AT: Final = 4
_VERSION_AT: Final = 12
_CRC_NBYTES: Final = 4
_MIN_NBYTES: Final = _VERSION_AT + 2 + _CRC_NBYTES
_PLAIN, _ZSTD = 0, 1


def content_of(data: bytes, magic: bytes, most_nbytes: int) -> bytes:
    """Return what a structure holds: at most so many bytes, whose checksum is right."""
    if len(data) < _MIN_NBYTES or not data.startswith(magic):
        raise FormatError(
            "this is not a structure of an OCDBT database",
            expected=f"bytes that begin {magic.hex()}",
            found=data[:4].hex(),
        )
    length = int.from_bytes(data[_LENGTH_AT:_VERSION_AT], "little")
    if length != len(data):
        raise IntegrityError(
            "a structure of the database has another length than it says",
            expected=f"{length:,} bytes",
            found=f"{len(data):,}",
        )
    expected, actual = int.from_bytes(data[-_CRC_NBYTES:], "little"), crc32c(data[:-_CRC_NBYTES])
    if expected != actual:
        raise IntegrityError(
            "a structure of the database is damaged",
            expected=f"CRC-32C 0x{expected:08x}",
            found=f"0x{actual:08x}",
            hint="If it was copied, copy it again",
        )
    body = data[:-_CRC_NBYTES]
    try:
        version, at = parse_varint(body, _VERSION_AT)
        compression, at = parse_varint(body, at)
    except IndexError:
        raise FormatError("a structure of the database ends before its fields do") from None
    if version or compression not in {_PLAIN, _ZSTD}:
        raise UnsupportedError(
            "the database is of a later version",
            expected="version 0, plain or Zstandard",
            found=f"version {version}, compression {compression}",
        )
    if compression == _ZSTD:
        return unpack_zstd(body[at:], most_nbytes)
    return body[at:]
