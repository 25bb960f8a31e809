"""The kind of Arrow's files and streams, and of files that are called alike, whose error says what to do."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.arrow import MAGIC, is_message
from tensorkeep.kinds.arrow._contents import parse_arrow
from tensorkeep.kinds.base import Kind, Place, file_kind

_SUFFIXES: Final = (".arrow", ".arrows", ".feather", ".ipc")


def _find(place: Place) -> Place | None:
    if place.is_directory:
        return None
    return place if place.head.startswith(MAGIC) or is_message(place.source) else None


_FILE: Final = file_kind("an Arrow file", parse_arrow, suffixes=_SUFFIXES, only_tensors=True)
ARROW: Final[Kind[Place]] = Kind(
    _FILE.name, _find, _FILE.open, files=_FILE.files, suffixes=_SUFFIXES, only_tensors=True
)
PARQUET: Final = file_kind("a Parquet file", parse_arrow, suffixes=(".parquet",), magic=b"PAR1", only_tensors=True)
FEATHER_1: Final = file_kind(
    "a file of Feather version 1", parse_arrow, suffixes=(), magic=b"FEA1", only_tensors=True
)
