"""From the checkpoint that stands in a store to a new one: nothing can be renamed, and several may write at once.

The files of the new one are there already, under names that no other save uses. Its index replaces the one that was
there when the save began, and no other: that is the commit. What only the old index names is removed after it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tensorkeep.checkpoint.saving._shard_upload import Sending, UploadedFile, remove_all, remove_uploaded
from tensorkeep.errors import (
    AccessDeniedError,
    FormatError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.layout import Index, ShardRecord, emit_index, index_names, parse_index, weights_name
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.paths import is_plain_name
from tensorkeep.transport import ByteRange, RemotePath, Version

_NOT_DONE: Final = AccessDeniedError, SourceChangedError, UnsupportedError
"""Errors after which the index is not the new one; after any other it may be."""

_SUFFIX: Final = ".safetensors"


class _Standing(msgspec.Struct, frozen=True):
    """The index that is there when a save begins.

    Attributes:
        name: Of its file.
        version: Which one it is.
        index: What it says; None if it cannot be read.
    """

    name: str
    version: Version
    index: Index | None


class RemoteCommit:
    """One save to a store, from the index that stands there to the next."""

    def __init__(self, directory: RemotePath, stem: str) -> None:
        self.directory = directory
        self._stem = stem
        self._standing = _standing_index(directory, stem)

    def index_file(self, wanted: str | None) -> str | None:
        """Return the name of the index: that of the one that stands there, which has to be replaced."""
        return self._standing.name if self._standing else wanted

    def sending(self, index_file: str, metadata: Mapping[str, str] | None, *, sha256: bool) -> Sending:
        """Return what those have to know who send files of this save."""
        old = self._standing.index if self._standing else None
        standing = (old.shards if old else None) or {}
        return Sending(self._stem, secrets.token_hex(4), index_file, metadata, sha256, standing)

    def commit(
        self, index_file: str, index: Callable[[dict[str, ShardRecord]], Index], sent: Mapping[str, UploadedFile]
    ) -> None:
        """Switch to files that were sent."""
        names = {file: found.name for file, found in sent.items()}
        before = self._standing.version if self._standing else None
        is_switching = False
        try:
            text = emit_index(index({file: found.record for file, found in sent.items()}).renamed(names))
            is_switching = True
            self.directory.joined(index_file).swap(text, before)
        except BaseException as error:
            if not is_switching or isinstance(error, _NOT_DONE):
                self._take_back(names.values())
            raise
        self._tidy(index_file, names.values())

    def _take_back(self, names: Iterable[str]) -> None:
        """Remove what was sent in vain, and neither was there before, nor is named by the index that is there now.

        Where an answer was lost, this save may have been done for a moment, and the next one may use files of it.
        """
        with suppress(TransportError):
            now = _standing_index(self.directory, self._stem)
            remove_uploaded(self.directory, set(names) - _files_of(self._standing) - _files_of(now))

    def _tidy(self, index_file: str, kept: Collection[str]) -> None:
        entries = {*index_names(self._stem), weights_name(self._stem)} - {index_file}
        shards = {name for name in _files_of(self._standing) if name.endswith(_SUFFIX) and is_plain_name(name)}
        errors = remove_all(self.directory, (entries | shards).difference(kept))
        if errors:
            raise errors[0].with_fields(
                message=f"the checkpoint is saved, but files of the old one are left: {errors[0].message}"
            ) from None


def _files_of(standing: _Standing | None) -> set[str]:
    return set(standing.index.files) if standing and standing.index else set()


def _standing_index(directory: RemotePath, stem: str) -> _Standing | None:
    """Find the index of the checkpoint that is there."""
    for name in index_names(stem):
        try:
            source = directory.joined(name).open()
        except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny what is missing
            continue
        text = bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES))))
        try:
            index = parse_index(text, source.name, check=False)
        except (FormatError, IntegrityError):
            index = None
        return _Standing(name, source.version, index)
    return None
