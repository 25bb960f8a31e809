"""The kind of PyTorch's pickles: one file, an index and its shards, or all files below a directory."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.pickles import PICKLE_SUFFIXES, is_pickled
from tensorkeep.kinds.base import Files, Kind, Opened, OpenOptions, Place
from tensorkeep.kinds.pickles._location import PickleLocation, find_pickled, pickle_index_names, stem_of_pickle_index
from tensorkeep.kinds.pickles._open import pickle_over
from tensorkeep.kinds.pickles._set import open_pickled


def _find(place: Place) -> PickleLocation | Place | None:
    if place.path is None:
        return place if is_pickled(place.source) else None
    if place.trusts_names and place.is_named(".safetensors") and not place.is_directory:
        return None
    return find_pickled(place.path, place.variant)


def _open(where: PickleLocation | Place, options: OpenOptions) -> Opened:
    return pickle_over(where.source, options) if isinstance(where, Place) else open_pickled(where, options)


def _files(where: PickleLocation | Place) -> Files | None:
    if isinstance(where, Place):
        return None
    index = where.index
    stem = (stem_of_pickle_index(index) if index else None) or where.files[0].removesuffix(".bin")
    entries = (f"{stem}.bin", *pickle_index_names(stem))
    return Files(
        where.directory, stem, where.files, index, entries, stem_of_pickle_index, PICKLE_SUFFIXES, yields=True
    )


PICKLES: Final[Kind[PickleLocation | Place]] = Kind(
    "files of pickles", _find, _open, files=_files, suffixes=PICKLE_SUFFIXES, is_converted=True
)
