"""Tensors to a store, complete or not at all, where nothing can be renamed and several may write at once.

An object appears when all of it is there. So the shards come first, under names that no other save uses, and then
the index, which replaces the one that was there when the save began, and no other: that is the commit. What only the
old index names is removed after it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint._contents import index_of, tensors_of
from tensorkeep.checkpoint._index import Index, ShardRecord, emit_index, parse_index
from tensorkeep.checkpoint._names import index_names, weights_name
from tensorkeep.checkpoint._plan import Shard, ShardPlan
from tensorkeep.checkpoint.workers import Meter, side_by_side
from tensorkeep.digests import digest_of
from tensorkeep.errors import (
    AccessDeniedError,
    FormatError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.tensors import FileBody, Prepared, Sealing, file_body
from tensorkeep.transport import ByteRange, RemotePath, Version

__all__ = ["Upload"]

_N_SHARDS_AT_ONCE: Final = 4
_NUMBER: Final = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.safetensors$")


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

    def file_like(self, record: ShardRecord) -> str | None:
        """Return the shard that is byte for byte the one of a record; None where there is none.

        Args:
            record: By what to know it.
        """
        known = (self.index.shards or {}) if self.index else {}
        wanted = record.nbytes, record.header
        return next((file for file, other in known.items() if (other.nbytes, other.header) == wanted), None)


def _standing_index(directory: RemotePath, stem: str) -> _Standing | None:
    """Find the index of the checkpoint that is there.

    Args:
        directory: Where it is.
        stem: What the names of its files begin with, the variant included.

    Raises:
        TransportError: If the store cannot be read.
    """
    for name in index_names(stem):
        try:
            source = directory.joined(name).open()
        except SourceMissingError:
            continue
        text = bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES))))
        try:
            index = parse_index(text, source.name, check=False)
        except (FormatError, IntegrityError):
            index = None
        return _Standing(name, source.version, index)
    return None


class Upload:
    """One save on its way to a store.

    Args:
        directory: URL of the checkpoint.
        stem: What the names of its files begin with, the variant included.
        metadata: Free text by key, for each shard.
        meter: Takes the bytes that are sent.
    """

    def __init__(self, directory: str, stem: str, metadata: Mapping[str, str] | None, meter: Meter) -> None:
        self._directory = RemotePath.of(directory)
        self._stem = stem
        self._metadata = metadata
        self._meter = meter
        self._standing = _standing_index(self._directory, stem)
        self._mark = secrets.token_hex(4)
        self._sent: list[str] = []

    def send(
        self,
        plan: ShardPlan,
        prepared: Prepared,
        index_file: str | None,
        index_metadata: Mapping[str, Any],
        *,
        sha256: bool,
    ) -> None:
        """Send a checkpoint.

        Args:
            plan: Which tensor goes into which shard.
            prepared: What is saved.
            index_file: Name of the index, if one is wanted. One that is there already is replaced in any case.
            index_metadata: What the index is to say beside the sizes, by key.
            sha256: Whether the index gets the SHA-256 of each shard.

        Raises:
            SourceChangedError: If another save was finished in the meantime.
            UnsupportedError: If nothing can be written there.
            TransportError: If it fails; unless the message says that the save is done, what was there counts.
        """
        index_file = self._standing.name if self._standing else index_file
        if index_file is None:
            hosts = tensors_of(plan.shards[0], prepared)
            self._put(plan.shards[0].file, file_body(hosts, self._metadata, state=prepared.state, sealing=Sealing()))
            return
        sealing = Sealing(index=index_file)
        try:
            found = side_by_side(
                lambda shard: self._send_shard(shard, prepared, sealing, sha256=sha256),
                plan.shards,
                n_threads=min(_N_SHARDS_AT_ONCE, len(plan.shards)),
                meter=self._meter,
            )
            names = {shard.file: name for shard, (name, _) in zip(plan.shards, found, strict=True)}
            text = emit_index(index_of(plan, prepared, dict(found), index_metadata, names))
        except BaseException:
            self._take_back()
            raise
        self._commit(index_file, text)
        self._tidy(index_file, set(names.values()))

    def _send_shard(
        self, shard: Shard, prepared: Prepared, sealing: Sealing, *, sha256: bool
    ) -> tuple[str, ShardRecord]:
        """Send a shard, if it is not there already, and return its name and what it is known by."""
        body = file_body(tensors_of(shard, prepared), self._metadata, sealing=sealing)
        record = ShardRecord(body.nbytes, digest_of(body.head).hex(), _sha256(body) if sha256 else None)
        same = self._standing.file_like(record) if self._standing else None
        if same is not None and self._stands(same, body.nbytes):
            self._meter.add(body.nbytes)
            return same, record
        name = self._own_name(shard.file)
        self._put(name, body)
        self._sent.append(name)
        return name, record

    def _own_name(self, file: str) -> str:
        """Return a name that ends as any shard's, and is of this save alone."""
        number = _NUMBER.search(file)
        ending = number[0] if number else "-00001-of-00001.safetensors"
        return f"{self._stem}-{self._mark}{ending}"

    def _stands(self, name: str, nbytes: int) -> bool:
        with suppress(TransportError):
            return self._directory.joined(name).version().nbytes == nbytes
        return False

    def _put(self, name: str, body: FileBody) -> None:
        self._directory.joined(name).put(body, on_written=self._meter.counting())

    def _commit(self, index_file: str, text: bytes) -> None:
        try:
            self._directory.joined(index_file).swap(text, self._standing.version if self._standing else None)
        except (AccessDeniedError, SourceChangedError, UnsupportedError):  # any other may come after it was done
            self._take_back()
            raise

    def _take_back(self) -> None:
        for name in self._sent:
            with suppress(TensorkeepError):
                self._directory.joined(name).remove()

    def _tidy(self, index_file: str, kept: set[str]) -> None:
        old = self._standing.index if self._standing else None
        entries = {*index_names(self._stem), weights_name(self._stem)} - {index_file}
        shards = {name for name in (old.files if old else ()) if os.path.basename(name) == name}
        try:
            for name in sorted((entries | shards) - kept):
                self._directory.joined(name).remove()
        except TransportError as error:
            raise error.with_fields(
                message=f"the checkpoint is saved, but files of the old one are left: {error.message}"
            ) from None


def _sha256(body: FileBody) -> str:
    hasher = hashlib.sha256()
    for piece in body.pieces():
        hasher.update(piece)
    return hasher.hexdigest()
