"""HDF5 files as a kind: every dataset of numbers, by its path as h5py shows it; in Keras's files, by its layer."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.formats.hdf5 import MAGIC, SUFFIXES, is_hdf5
from tensorkeep.formats.keras import parse_weights, search_weights
from tensorkeep.kinds.base import Kind, Opened, OpenOptions, Place, SharedBytesFile, file_kind
from tensorkeep.kinds.hdf5._h5py_contents import contents_by_h5py
from tensorkeep.kinds.hdf5._library import ENGINE

_FILE: Final = file_kind(
    "an HDF5 file", parse_weights, suffixes=SUFFIXES, magic=MAGIC, search=search_weights, opens=SharedBytesFile
)
_BY_H5PY: Final = file_kind("an HDF5 file, read by h5py", contents_by_h5py, suffixes=SUFFIXES, magic=MAGIC)


def _find(place: Place) -> Place | None:
    """Recognize a file by its first bytes; if a block of the user's is before them, by its name first."""
    if place.is_directory or not (place.is_named(*SUFFIXES) or place.head.startswith(MAGIC)):
        return None
    return place if is_hdf5(place.source) else None


def _open(place: Place, options: OpenOptions) -> Opened:
    return (_FILE if options.engine is None else _BY_H5PY).open(place, options)


HDF5: Final[Kind[Place]] = msgspec.structs.replace(_FILE, find=_find, open=_open, engines=(ENGINE,))
