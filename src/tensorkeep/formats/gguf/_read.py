"""The header of a GGUF file, versions 2 and 3, in either byte order."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import FormatError
from tensorkeep.formats._contents import FileContents
from tensorkeep.formats.gguf._tensors import place_tensors, read_infos
from tensorkeep.formats.gguf._values import ValueType, read_entries
from tensorkeep.formats.gguf._window import HeaderWindow
from tensorkeep.limits import MAX_I64
from tensorkeep.transport import ByteSource

MAGIC: Final = b"GGUF"
ALIGNMENT_KEY: Final = "general.alignment"
DEFAULT_ALIGNMENT: Final = 32

_VERSIONS: Final = (2, 3)
_FIXED_NBYTES: Final = 24
"""Bytes before the first key: the magic, the version, the numbers of tensors and keys."""


class GgufContents(FileContents, frozen=True):
    """What a GGUF file says of itself.

    Attributes:
        version: Version of the format.
        is_big_endian: Whether all numbers have their highest byte first.
        types: Key to the type of its value in the file.
        sources: Name of each shard to its bytes, if these are the contents of several.
    """

    version: int = 3
    is_big_endian: bool = False
    types: Mapping[str, ValueType] = {}
    sources: Mapping[str, ByteSource] = {}


def parse_gguf(source: ByteSource) -> GgufContents:
    """Read the header of a GGUF file."""
    if source.nbytes < _FIXED_NBYTES:
        raise FormatError("the file ends within its header", expected="24 bytes or more", found=f"{source.nbytes}")
    window = HeaderWindow(source)
    version, order = _version_of(window.data)
    n_tensors, n_keys = struct.unpack_from(f"{order}QQ", window.data, 8)
    is_big_endian = order == ">"
    with PausedCollector():
        values, types, at = read_entries(window, _FIXED_NBYTES, n_keys, order)
        alignment = _alignment(values, types)
        infos, at = read_infos(window, at, n_tensors, order)
        data_start = at + -at % alignment
        tensors, unknowns = place_tensors(infos, data_start, alignment, is_big_endian=is_big_endian)
    return GgufContents(
        tensors, attributes=values, unknowns=unknowns, version=version, is_big_endian=is_big_endian, types=types
    )


def _version_of(head: bytes) -> tuple[int, str]:
    """Return the version and the byte order, in which it is the smaller number."""
    if not head.startswith(MAGIC):
        raise FormatError("the file is not a GGUF file", expected="GGUF in its first bytes", found=repr(head[:4]))
    version, order = min((struct.unpack_from(f"{order}I", head, 4)[0], order) for order in "<>")
    if version == 1:
        raise FormatError(
            "the file has version 1 of GGUF, which was in use for a week in August 2023",
            expected="version 2 or 3",
            hint="Get a newer file of the model",
        )
    if version not in _VERSIONS:
        raise FormatError("the file has an unknown version of GGUF", expected="version 2 or 3", found=str(version))
    return version, order


def _alignment(values: Mapping[str, Any], types: Mapping[str, ValueType]) -> int:
    """Return what the starts of the data and of each tensor are multiples of."""
    alignment = values.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    is_number = types.get(ALIGNMENT_KEY, "u32") == "u32"
    if not is_number or not 0 < alignment <= MAX_I64 or alignment & (alignment - 1):
        raise FormatError(
            f"no alignment can be the value of {ALIGNMENT_KEY}",
            expected="a power of two, as u32",
            found=f"{alignment!r:.100}",
        )
    return int(alignment)
