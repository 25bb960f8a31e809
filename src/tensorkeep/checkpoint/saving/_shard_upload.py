"""The files of one save on their way to a store, whoever sends them.

An object appears when all of it is there, under a name that no other save uses; so nothing that stands there changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.digests import digest_of
from tensorkeep.errors import TensorkeepError, TransportError
from tensorkeep.layout import ShardRecord
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import FileBody, Sealing, file_body
from tensorkeep.transport import RemotePath

_NUMBER: Final = re.compile(r"-[0-9]{5,}-of-[0-9]{5,}\.safetensors$")
_N_REMOVED_AT_ONCE: Final = 8


class UploadedFile(msgspec.Struct, frozen=True):
    """A file that is there now.

    Attributes:
        name: Of its object: a new one, or one of the checkpoint that stands there and has the same bytes.
        record: By what to know it.
    """

    name: str
    record: ShardRecord


class Sending(msgspec.Struct, frozen=True):
    """What whoever sends files of one save has to know; it can go from process to process.

    Attributes:
        stem: What the names of the files begin with, the variant included.
        mark: What follows in them, and in those of no other save.
        index_file: Name of the index.
        metadata: Free text by key, for each file.
        sha256: Whether the index gets the SHA-256 of each file.
        standing: The files of the checkpoint that stands there, each with what it is known by.
    """

    stem: str
    mark: str
    index_file: str
    metadata: Mapping[str, str] | None
    sha256: bool
    standing: dict[str, ShardRecord]

    def name_of(self, file: str) -> str:
        """Return the name of a file that this save sends."""
        return f"{self.stem}-{self.mark}{_ending(file)}"

    def for_files(self, files: Collection[str]) -> Sending:
        """Return what whoever sends only some files has to know: of the standing files, those with their numbers."""
        endings = tuple(map(_ending, files))
        standing = {name: record for name, record in self.standing.items() if name.endswith(endings)}
        return msgspec.structs.replace(self, standing=standing)

    def send(
        self,
        directory: RemotePath,
        file: str,
        to_write: Mapping[str, TensorToWrite],
        on_written: Callable[[int], None],
    ) -> UploadedFile:
        """Send a file, if it does not stand there byte for byte."""
        body = file_body(to_write, self.metadata, sealing=Sealing(index=self.index_file))
        record = ShardRecord(body.nbytes, digest_of(body.head).hex(), _sha256(body) if self.sha256 else None)
        same = self._standing_like(directory, record)
        if same is not None:
            on_written(body.nbytes)
            return UploadedFile(same, record)
        name = self.name_of(file)
        directory.joined(name).put(body, on_written=on_written)
        return UploadedFile(name, record)

    def _standing_like(self, directory: RemotePath, record: ShardRecord) -> str | None:
        wanted = record.nbytes, record.header
        same = next((file for file, known in self.standing.items() if (known.nbytes, known.header) == wanted), None)
        if same is not None:
            with suppress(TransportError):
                return same if directory.joined(same).version().nbytes == record.nbytes else None
        return None


def _ending(file: str) -> str:
    number = _NUMBER.search(file)
    return number[0] if number else "-00001-of-00001.safetensors"


def remove_uploaded(directory: RemotePath, names: Collection[str]) -> None:
    """Remove what a save that comes to nothing has sent, or may have."""
    remove_all(directory, names)


def remove_all(directory: RemotePath, names: Collection[str]) -> list[TensorkeepError]:
    """Remove files, several at a time, and return what went wrong."""
    errors: list[TensorkeepError] = []

    def remove(name: str) -> None:
        try:
            directory.joined(name).remove()
        except TensorkeepError as error:
            errors.append(error)

    parallel_map(remove, names, n_threads=min(_N_REMOVED_AT_ONCE, len(names)), meter=ProgressMeter(None, 0))
    return errors


def _sha256(body: FileBody) -> str:
    hasher = hashlib.sha256()
    for piece in body.pieces():
        hasher.update(piece)
    return hasher.hexdigest()
