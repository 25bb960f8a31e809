"""The formats that bytes may be taken for, by their start; a file can have several at once. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal

from tensorkeep.errors import HeaderError, RefusedError
from tensorkeep.formats.archives import is_tar_header
from tensorkeep.formats.npy import MAGIC
from tensorkeep.formats.pickles import begins_like_a_pickle
from tensorkeep.formats.safetensors import parse_header_nbytes

Form = Literal["zip archive", "tar archive", "pickle", "NumPy array", "safetensors", "HDF5 file"]

READ_IN_ORDER: Final[frozenset[Form]] = frozenset(("NumPy array",))
"""Formats that are scanned from start to end, like bytes without a format; the others are read in any order."""

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
USTAR: Final = slice(257, 262)
USTAR_MARK: Final = b"ustar"
"""What most tar archives have in their first header, and where."""

_LENGTH_NBYTES: Final = 8
_begins_json = re.compile(rb"\{\s*+[\"}]").match
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_HDF5_STARTS: Final = (0, *(512 << power for power in range(7)))
"""Where an HDF5 file may begin: other programs may put something before it."""


def forms_of(head: bytes, nbytes: int) -> list[Form]:
    """Return every format that some reader may take the bytes for."""
    forms: list[Form] = []
    if head.startswith(_ZIP):
        forms.append("zip archive")
    if head[USTAR] == USTAR_MARK or is_tar_header(head):
        forms.append("tar archive")
    if not head.startswith(_ZIP) and begins_like_a_pickle(head, is_whole=nbytes == len(head)):
        forms.append("pickle")
    if head.startswith(MAGIC):
        forms.append("NumPy array")
    if _begins_json(head, _LENGTH_NBYTES) and _has_header(head, nbytes):
        forms.append("safetensors")
    if any(head.startswith(_HDF5, start) for start in _HDF5_STARTS):
        forms.append("HDF5 file")
    return forms


def _has_header(head: bytes, nbytes: int) -> bool:
    """Say whether the bytes start with a header length that fits the file."""
    try:
        parse_header_nbytes(head[:_LENGTH_NBYTES], nbytes)
    except (HeaderError, RefusedError):
        return False
    return True
