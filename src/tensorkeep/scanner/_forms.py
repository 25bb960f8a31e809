"""What bytes may be taken for, by their beginning; a file can be several things at once. Pure."""

from __future__ import annotations

from typing import Final, Literal

from tensorkeep.errors import HeaderError, RefusedError
from tensorkeep.formats.pickles import begins_like_a_pickle
from tensorkeep.formats.safetensors import parse_header_nbytes

__all__ = ["Form", "forms_of"]

Form = Literal["zip archive", "tar archive", "pickle", "NumPy array", "safetensors"]

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_LENGTH_NBYTES: Final = 8


def forms_of(head: bytes, nbytes: int) -> list[Form]:
    """Return what bytes may be taken for.

    Args:
        head: The first of them.
        nbytes: How many there are.
    """
    if head.startswith(_ZIP):
        return ["zip archive"]
    forms: list[Form] = []
    if head[257:262] == b"ustar":
        forms.append("tar archive")
    if begins_like_a_pickle(head, is_whole=nbytes == len(head)):
        forms.append("pickle")
    if head.startswith(b"\x93NUMPY"):
        forms.append("NumPy array")
    if head[_LENGTH_NBYTES : _LENGTH_NBYTES + 1] == b"{" and _has_header(head, nbytes):
        forms.append("safetensors")
    return forms


def _has_header(head: bytes, nbytes: int) -> bool:
    """Say whether the length of a header stands there, and so many bytes follow."""
    try:
        parse_header_nbytes(head[:_LENGTH_NBYTES], nbytes)
    except (HeaderError, RefusedError):
        return False
    return True
