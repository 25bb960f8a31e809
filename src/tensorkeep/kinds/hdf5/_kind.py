"""HDF5 files as a kind: every dataset of numbers, by its path as h5py shows it; in Keras's files, by its layer."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.formats.hdf5 import MAGIC, SUFFIXES, is_hdf5
from tensorkeep.formats.keras import parse_weights
from tensorkeep.kinds._base import Kind
from tensorkeep.kinds._flat_file import file_kind
from tensorkeep.kinds._place import Place

_FILE: Final = file_kind("an HDF5 file", parse_weights, suffixes=SUFFIXES, magic=MAGIC)


def _find(place: Place) -> Place | None:
    """Recognize a file by its first bytes; if a block of the user's is before them, by its name first."""
    if place.is_directory or not (place.is_named(*SUFFIXES) or place.head.startswith(MAGIC)):
        return None
    return place if is_hdf5(place.source) else None


HDF5: Final[Kind[Place]] = msgspec.structs.replace(_FILE, find=_find)
