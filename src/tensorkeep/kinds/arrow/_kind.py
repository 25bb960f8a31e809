"""The kind of Arrow's files and streams."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.arrow import MAGIC, is_message
from tensorkeep.kinds.arrow._contents import parse_arrow
from tensorkeep.kinds.base import Kind, Place, file_kind

_MAGICS: Final = (MAGIC, b"PAR1", b"FEA1")
"""Those of Parquet and of the first Feather get an error that says what to do."""

_SUFFIXES: Final = (".arrow", ".arrows", ".feather", ".ipc", ".parquet")


def _find(place: Place) -> Place | None:
    if place.is_directory:
        return None
    return place if place.head.startswith(_MAGICS) or is_message(place.source) else None


_FILE: Final = file_kind("an Arrow file", parse_arrow, suffixes=_SUFFIXES, only_tensors=True)
ARROW: Final[Kind[Place]] = Kind(
    _FILE.name, _find, _FILE.open, files=_FILE.files, suffixes=_SUFFIXES, only_tensors=True
)
