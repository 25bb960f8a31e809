"""Recognizes a checkpoint of TensorFlow by the common beginning of its files' names, by a file, or in a directory."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.tensorflow import INDEX_SUFFIX, MAX_STATE_NBYTES, STATE_FILE, is_table, latest_in, stem_of
from tensorkeep.kinds.base import Place
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, exists, join, open_source, split

_SAVED_MODEL: Final = "saved_model.pb"
PROGRAM_FILES: Final = (_SAVED_MODEL, "fingerprint.pb")
"""What a SavedModel has beside its checkpoint, and is fetched with it."""

_VARIABLES: Final = "variables/variables"
"""Where a SavedModel has its checkpoint."""

_TABLE_START: Final = b"\0\0"
"""The first key of every index is empty, so it shares no bytes and has none of its own."""


class BundleLocation(msgspec.Struct, frozen=True):
    """Where the files of a checkpoint are.

    Attributes:
        directory: Their directory.
        stem: What their names begin with, as a path below the directory.
        is_saved_model: Whether a program belongs to it.
    """

    directory: str
    stem: str
    is_saved_model: bool = False

    @property
    def path(self) -> str:
        """What TensorFlow calls the checkpoint: the directory of a SavedModel, else the beginning of the names."""
        return self.directory if self.is_saved_model else self.path_of(self.stem)

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        path = self.directory
        for part in name.split("/"):
            path = join(path, part)
        return path


def find_bundle(place: Place) -> BundleLocation | None:
    """Return where the files of a checkpoint are; None if the place is something else."""
    if not place.path:
        _refuse_table(place)
        return None
    if place.is_directory:
        found = _in_directory(place.path, place.listing)
        return found or (None if place.path.endswith("/") else _by_stem(place.path))
    directory, name = split(place.path)
    if name == _SAVED_MODEL:
        return BundleLocation(directory, _VARIABLES, is_saved_model=True)
    stem = stem_of(name)
    if stem is not None:
        return BundleLocation(directory, stem)
    if place.is_absent:
        return _by_stem(place.path)
    _refuse_table(place)
    return None


def _by_stem(path: str) -> BundleLocation | None:
    directory, name = split(path)
    return BundleLocation(directory, name) if name and exists(join(directory, name + INDEX_SUFFIX)) else None


def _in_directory(directory: str, names: list[str] | None) -> BundleLocation | None:
    """Find a SavedModel, the only checkpoint, or the latest one; `names` is None if a server lists nothing."""
    if _SAVED_MODEL in names if names is not None else exists(join(directory, _SAVED_MODEL)):
        return BundleLocation(directory, _VARIABLES, is_saved_model=True)
    stems = [stem for stem in map(_stem_of_index, names or ()) if stem is not None]
    if len(stems) == 1:
        return BundleLocation(directory, stems[0])
    if names is None or (stems and STATE_FILE in names):
        return _latest(directory)
    if stems:
        raise UnsupportedError(
            "the directory holds several checkpoints of TensorFlow, and no file says which is the latest",
            path=directory,
            found=listed(stems),
            hint=f"Open one of them, such as {join(directory, stems[-1])}",
        )
    return None


def _stem_of_index(name: str) -> str | None:
    return name.removesuffix(INDEX_SUFFIX) if name.endswith(INDEX_SUFFIX) and name != INDEX_SUFFIX else None


def _latest(directory: str) -> BundleLocation | None:
    """Return the checkpoint that TensorFlow's text file in the directory names; None without that file."""
    path = join(directory, STATE_FILE)
    if not exists(path):
        return None
    source = open_source(path)
    try:
        text = bytes(source.read(ByteRange(0, min(source.nbytes, MAX_STATE_NBYTES))))
    finally:
        source.close()
    return BundleLocation(directory, latest_in(text))


def _refuse_table(place: Place) -> None:
    """Refuse an index without a name, whose data files cannot be found, and a checkpoint of the first format."""
    if place.head.startswith(_TABLE_START) and is_table(place.source):
        raise UnsupportedError(
            "this is the index of a TensorFlow checkpoint, or a checkpoint of its first format, which ended in 2016",
            path=place.path,
            expected="a path that ends in .index, or what the names of the checkpoint's files begin with",
            hint="Restore one of the first format with tf.compat.v1.train.Saver, and save it again",
        )
