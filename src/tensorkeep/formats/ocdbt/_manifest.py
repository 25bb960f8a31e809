"""The manifest of a database: its configuration, and where the tree of each version begins. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.ocdbt._columns import Columns
from tensorkeep.formats.ocdbt._envelope import content_of
from tensorkeep.formats.ocdbt._files import DataFile, file_at, read_files
from tensorkeep.limits import MAX_I64
from tensorkeep.transport import ByteRange

MAX_MANIFEST_NBYTES: Final = 2**22
"""Bytes of a manifest when unpacked; one with the 16 versions that tensorstore keeps in it has 2,000."""

_MAGIC: Final = bytes.fromhex("0cdb3a2a")
_UUID_NBYTES: Final = 16
_TIME_NBYTES: Final = 8
_LEVEL_NBYTES: Final = 4
_SINGLE, _NUMBERED = 0, 1
_ZSTD: Final = 1
_match_numbered = re.compile(r"manifest\.[0-9a-f]{16}").fullmatch


class Root(msgspec.Struct, frozen=True):
    """The root of a tree.

    Attributes:
        file: Where it is.
        span: Its bytes there.
        height: Levels of nodes below it.
    """

    file: DataFile
    span: ByteRange
    height: int


class Manifest(msgspec.Struct, frozen=True):
    """What a manifest says.

    Attributes:
        is_numbered: Whether it holds the configuration only, and versions are in files of numbered names.
        root: The newest tree; None if nothing is in it.
    """

    is_numbered: bool
    root: Root | None = None


def newest_of(names: Iterable[str]) -> str | None:
    """Return the last of the numbered manifests among some names."""
    return max(filter(_match_numbered, names), default=None)


def parse_manifest(data: bytes) -> Manifest:
    """Parse `manifest.ocdbt`, or a numbered one."""
    columns = Columns(content_of(data, _MAGIC, MAX_MANIFEST_NBYTES))
    columns.take(_UUID_NBYTES)
    kind = columns.number()
    columns.numbers(2)  # how large values in nodes, and nodes, may be
    columns.byte()  # how many versions a node of versions has
    if columns.number() == _ZSTD:
        columns.take(_LEVEL_NBYTES)
    if kind == _NUMBERED:
        columns.end()
        return Manifest(is_numbered=True)
    if kind != _SINGLE:
        raise UnsupportedError("the manifest of the database is of a later kind", found=f"kind {kind}")
    files = read_files(columns, "")
    return Manifest(is_numbered=False, root=_newest(columns, files))


def _newest(columns: Columns, files: list[DataFile]) -> Root | None:
    """Read the versions, which come before older ones in other files, and return the root of the last."""
    n_versions = columns.count()
    if not n_versions:
        raise FormatError("the database has no version")
    columns.numbers(n_versions)  # generations
    heights = columns.take(n_versions)
    numbers, starts, lengths, n_keys = (columns.numbers(n_versions) for _ in range(4))
    if starts[-1] > MAX_I64 and not n_keys[-1]:
        return None
    return Root(file_at(files, numbers[-1]), span_of(starts[-1], lengths[-1]), heights[-1])


def span_of(start: int, nbytes: int) -> ByteRange:
    """Return a range of bytes of a data file."""
    if start + nbytes > MAX_I64:
        raise FormatError("the database refers to bytes that no file has", found=f"byte {start:,}")
    return ByteRange(start, start + nbytes)
