"""Shards on their way to a store, sent by this process or by any other that has the `UploadSpec` of the save.

1. An object appears when all of it has arrived, under a name that no other save uses, where no reader looks.
2. A shard that the old checkpoint has byte for byte is not sent again: the new index names the old object.
3. A shard that a checkpoint beside it has byte for byte is copied by the store: each has objects of its own, so that
   either can be removed.
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
from tensorkeep.encryption import Encryption
from tensorkeep.errors import TensorkeepError, TransportError
from tensorkeep.formats.safetensors import Arrangement
from tensorkeep.layout import ShardRecord, blocks_name
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import BlockStream, FileBody, Sealing, file_body
from tensorkeep.transport import Body, RemotePath

_NUMBER: Final = re.compile(r"-[0-9]{5,}-of-[0-9]{5,}\.safetensors$")
_N_REMOVED_AT_ONCE: Final = 8


class UploadedFile(msgspec.Struct, frozen=True):
    """A shard that is in the store.

    Attributes:
        name: Of its object: a new one, or one of the old checkpoint with the same bytes.
        record: Its size and digests.
    """

    name: str
    record: ShardRecord


class Sibling(msgspec.Struct, frozen=True):
    """A checkpoint in a directory beside the one that is saved.

    Attributes:
        name: Of its directory.
        files: Its files, with their records.
    """

    name: str
    files: dict[str, ShardRecord]


class UploadSpec(msgspec.Struct, frozen=True):
    """What a process needs to send shards of one save; it can be sent from process to process.

    Attributes:
        stem: What file names begin with, the variant included.
        token: Random text in every file name, unique to this save.
        index_file: Name of the index.
        metadata: Free text for the header of each file.
        sha256: Whether the index gets the SHA-256 of each file.
        existing: Files of the checkpoint being replaced, with their records.
        arrangement: Where tensors go in a file.
        block_digests: Whether each file gets one with the digests of its blocks.
        sibling: A checkpoint whose files may be copied.
    """

    stem: str
    token: str
    index_file: str
    metadata: Mapping[str, str] | None
    sha256: bool
    existing: dict[str, ShardRecord]
    arrangement: Arrangement
    block_digests: bool = False
    sibling: Sibling | None = None

    def name_of(self, file: str) -> str:
        """Return the name that a file of the plan gets in the store."""
        return f"{self.stem}-{self.token}{_ending(file)}"

    def for_files(self, files: Collection[str]) -> UploadSpec:
        """Return the spec for a process that sends only some files, with the existing files of the same numbers."""
        endings = tuple(map(_ending, files))
        existing = {name: record for name, record in self.existing.items() if name.endswith(endings)}
        return msgspec.structs.replace(self, existing=existing)

    def upload(
        self,
        directory: RemotePath,
        file: str,
        to_write: Mapping[str, TensorToWrite],
        on_written: Callable[[int], None],
        encryption: Encryption | None = None,
    ) -> UploadedFile:
        """Send a file, unless the old checkpoint has one with the same bytes."""
        sealing = Sealing(self.index_file, encryption, file)
        with BlockStream() as blocks:
            taking = blocks if self.block_digests else None
            body = file_body(to_write, self.metadata, sealing=sealing, arrangement=self.arrangement, blocks=taking)
            tree = blocks.tree
        record = ShardRecord(
            body.nbytes,
            digest_of(body.head).hex(),
            _sha256(body) if self.sha256 else None,
            tree.root.hex() if tree is not None else None,
        )
        same = self._existing_like(directory, record)
        name = same or self.name_of(file)
        if tree is not None:
            content = tree.file
            directory.joined(blocks_name(name)).put(Body(len(content), lambda: [content]))
        if same is not None or self._is_copied(directory, record, name):
            on_written(body.nbytes)
        else:
            directory.joined(name).put(body, on_written=on_written)
        return UploadedFile(name, record)

    def _existing_like(self, directory: RemotePath, record: ShardRecord) -> str | None:
        same = _equal(self.existing, record)
        return same if same is not None and _is_there(directory.joined(same), record) else None

    def _is_copied(self, directory: RemotePath, record: ShardRecord, name: str) -> bool:
        """Let the store copy an equal file; False if no file is equal, or the store cannot."""
        old = _equal(self.sibling.files, record) if self.sibling else None
        if old is None or self.sibling is None:
            return False
        new = directory.joined(name)
        try:
            directory.split()[0].joined(self.sibling.name).joined(old).copy_to(new)
        except TransportError:  # it was removed meanwhile, or is too large for one request
            return False
        return _is_there(new, record)


def _equal(files: Mapping[str, ShardRecord], record: ShardRecord) -> str | None:
    """Return a file with the same header, which has the digests of all tensors."""
    wanted = record.nbytes, record.header
    return next((file for file, known in files.items() if (known.nbytes, known.header) == wanted), None)


def _is_there(path: RemotePath, record: ShardRecord) -> bool:
    with suppress(TransportError):  # an index may name a file that is gone
        return path.read_by(head_nbytes=1).version().nbytes == record.nbytes
    return False


def _ending(file: str) -> str:
    number = _NUMBER.search(file)
    return number[0] if number else "-00001-of-00001.safetensors"


def remove_objects(directory: RemotePath, names: Collection[str]) -> list[TensorkeepError]:
    """Remove objects, several at a time, and return what went wrong."""
    if not names:
        return []
    with suppress(TensorkeepError):  # such as one that is missing, which some stores refuse
        directory.remove_all(names)
        return []
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
