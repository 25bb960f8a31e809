"""What a save removes of the checkpoint it replaces. This is decided here and nowhere else.

A save owns the files by which its checkpoint is found (the index and the single file, under each spelling of their
names) and the shards that the old index lists. It removes these, except

- files that the new checkpoint has too, and
- shards that the index of another checkpoint in the same directory also lists.

Everything else in the directory stays, and so do files that no index lists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, IntegrityError, RefusedError, SourceMissingError, as_transport_error
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import Index, blocks_name, index_names, stem_of_index, weights_name
from tensorkeep.paths import is_plain_name

_SAFETENSORS: Final = (".safetensors",)


class FileNames(msgspec.Struct, frozen=True):
    """The file names by which one checkpoint of a kind is found.

    Attributes:
        entries: The index and the single file, under each spelling.
        is_index: Whether a name is that of an index of this kind, of any checkpoint.
        suffixes: Endings of shards.
    """

    entries: tuple[str, ...]
    is_index: Callable[[str], object] = stem_of_index
    suffixes: tuple[str, ...] = _SAFETENSORS

    @classmethod
    def of_safetensors(cls, stem: str) -> FileNames:
        """Return the names of a safetensors checkpoint."""
        return cls((weights_name(stem), *index_names(stem)))


class OldFiles(msgspec.Struct, frozen=True):
    """Files of the checkpoint that a save replaces.

    Attributes:
        entries: The index and the single file that exist, or may exist.
        shards: Files that its index lists.
        shared: Files that another index in the directory lists.
    """

    entries: frozenset[str]
    shards: frozenset[str]
    shared: frozenset[str] = frozenset()

    def obsolete(self, new: Collection[str]) -> frozenset[str]:
        """Return what goes once the new files are in place."""
        return (self.entries | (self.shards - self.shared)).difference(new)

    @classmethod
    def in_directory(cls, directory: str, names: FileNames) -> OldFiles:
        """Look at what a directory holds."""
        with as_transport_error("could not read the directory", directory):
            there = os.listdir(directory)
        return cls.among(there, lambda name: _index_at(directory, name), names)

    @classmethod
    def among(cls, there: Collection[str], index_at: Callable[[str], Index | None], names: FileNames) -> OldFiles:
        """Look at a listing; `index_at` reads an index in it, or returns None."""
        entries = frozenset(names.entries).intersection(there)
        indexes = set(filter(names.is_index, there))

        def listed_by(some: Iterable[str]) -> frozenset[str]:
            return frozenset().union(*(shards_in(index_at(name), names.suffixes) for name in some))

        return cls(entries, listed_by(indexes & entries), listed_by(indexes - entries))

    @classmethod
    def in_store(cls, stem: str, old: Index | None) -> OldFiles:
        """Name what a store may hold: a listing would cost requests, and buckets may deny it."""
        names = FileNames.of_safetensors(stem)
        return cls(frozenset(names.entries), shards_in(old, names.suffixes))


def exists(directory: str, name: str) -> bool:
    """Say whether a directory has an entry, a broken link included."""
    try:
        with as_transport_error("could not read the directory", directory):
            os.lstat(os.path.join(directory, name))
    except SourceMissingError:
        return False
    return True


def shards_in(index: Index | None, suffixes: tuple[str, ...] = _SAFETENSORS) -> frozenset[str]:
    """Return the shards that an index lists, without names that lead out of the directory or end otherwise.

    With them come the files that have the digests of their blocks.
    """
    if index is None:
        return frozenset()
    shards = {name for name in index.weight_map.values() if name.endswith(suffixes) and is_plain_name(name)}
    return frozenset(shards | {blocks_name(name) for name in shards}.intersection(index.sidecars))


def _index_at(directory: str, name: str) -> Index | None:
    try:
        return read_index(os.path.join(directory, name), check=False)
    except (FormatError, RefusedError, IntegrityError, SourceMissingError):  # not an index: it owns nothing
        return None
