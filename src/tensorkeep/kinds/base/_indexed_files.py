"""Which files of a format a path refers to: one file, or an index and its shards, as transformers names them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from tensorkeep.kinds.base._kind import Files
from tensorkeep.kinds.base._opened import Opened
from tensorkeep.kinds.base._place import Place
from tensorkeep.kinds.base._weight_map import refuse_missing_shards
from tensorkeep.transport import join, split

_INDEX = ".index.json"


class IndexedFiles(msgspec.Struct, frozen=True):
    """An index, or one file in a directory.

    Attributes:
        path: The path that was given.
        directory: The directory of the files.
        index: Name of the index; None for a single file.
        name: Name of the single file; empty with an index.
        suffix: Suffix of the files.
    """

    path: str
    directory: str
    index: str | None
    name: str
    suffix: str

    def files(self) -> Files:
        """Return which files to fetch."""
        entry = self.index or self.name
        stem = entry.removesuffix(_INDEX).removesuffix(self.suffix)
        names = () if self.index else (self.name,)
        return Files(
            self.directory, stem, names, self.index, (entry,), is_index_of(self.suffix), (self.suffix,), yields=True
        )

    def open_shards(self, names: tuple[str, ...], open_one: Callable[[str], Opened]) -> dict[str, Opened]:
        """Open all shards by path, or none."""
        refuse_missing_shards(self.path, self.directory, names)
        with ExitStack() as opened:
            files = {}
            for name in names:
                files[name] = open_one(join(self.directory, name))
                opened.callback(files[name].close)
            opened.pop_all()
        return files


def is_index_of(suffix: str) -> Callable[[str], bool]:
    """Return a function that says whether a name is an index of files with this suffix."""
    return lambda name: name.endswith(suffix + _INDEX)


def find_indexed(place: Place, suffix: str) -> IndexedFiles | None:
    """Find the index at a path, or in a directory the only index, or the only file, with this suffix.

    Directories with weights of PyTorch are left to those.
    """
    if place.path is None:
        return None
    if not place.is_directory:
        directory, name = split(place.path)
        return IndexedFiles(place.path, directory, name, "", suffix) if name.endswith(suffix + _INDEX) else None
    names = [name for name in place.names if not name.startswith(".")]
    if any(name.endswith((".bin", ".bin.index.json")) for name in names):
        return None
    indexes = [name for name in names if name.endswith(suffix + _INDEX)]
    files = [name for name in names if name.endswith(suffix)]
    if len(indexes) == 1:
        return IndexedFiles(place.path, place.path, indexes[0], "", suffix)
    if len(files) == 1 and not indexes:
        return IndexedFiles(place.path, place.path, None, files[0], suffix)
    return None
