"""The formats that bytes may be taken for, by their start; a file can have several at once. Pure."""

from __future__ import annotations

import zlib
from typing import Final, Literal

from tensorkeep.errors import HeaderError, RefusedError
from tensorkeep.formats.pickles import begins_like_a_pickle
from tensorkeep.formats.safetensors import parse_header_nbytes
from tensorkeep.scanner._tar_members import is_tar_header

Form = Literal["zip archive", "tar archive", "pickle", "NumPy array", "safetensors"]

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_LENGTH_NBYTES: Final = 8
_COMPRESSED: Final = {
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"]\x00\x00": "an LZMA archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"\x04\x22\x4d\x18": "an LZ4 archive",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!\x1a\x07": "a RAR archive",
}
_ZLIB: Final = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")


def forms_of(head: bytes, nbytes: int) -> list[Form]:
    """Return every format that some reader may take the bytes for."""
    forms: list[Form] = []
    if head.startswith(_ZIP):
        forms.append("zip archive")
    if head[257:262] == b"ustar" or is_tar_header(head):
        forms.append("tar archive")
    if not head.startswith(_ZIP) and begins_like_a_pickle(head, is_whole=nbytes == len(head)):
        forms.append("pickle")
    if head.startswith(b"\x93NUMPY"):
        forms.append("NumPy array")
    if head[_LENGTH_NBYTES : _LENGTH_NBYTES + 1] == b"{" and _has_header(head, nbytes):
        forms.append("safetensors")
    return forms


def compression_of(head: bytes) -> str | None:
    """Return how all of the bytes are compressed; None if they are not."""
    if head.startswith(_ZLIB) and _is_inflated(head):
        return "compressed by zlib"
    return next((what for signature, what in _COMPRESSED.items() if head.startswith(signature)), None)


def _is_inflated(head: bytes) -> bool:
    try:
        return bool(zlib.decompressobj().decompress(head, 1))
    except zlib.error:
        return False


def _has_header(head: bytes, nbytes: int) -> bool:
    """Say whether the bytes start with a header length that fits the file."""
    try:
        parse_header_nbytes(head[:_LENGTH_NBYTES], nbytes)
    except (HeaderError, RefusedError):
        return False
    return True
