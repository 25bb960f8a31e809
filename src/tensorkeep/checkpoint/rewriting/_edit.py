"""Names and metadata of an existing checkpoint, changed without a copy of its data where the headers have room."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint.rewriting._in_place import EditSession, edit_session
from tensorkeep.checkpoint.rewriting._named_texts import rename_texts
from tensorkeep.digests import digest_of
from tensorkeep.errors import RefusedError, UnsupportedError
from tensorkeep.formats.safetensors import (
    ENCRYPTION_KEY,
    SEAL_KEY,
    STATE_KEY,
    State,
    emit_header,
    emit_sealed_header,
    emit_state,
    metadata_to_write,
)
from tensorkeep.kinds.safetensors import TensorFile
from tensorkeep.layout import Index, Piece, ShardRecord, pieces_in_order
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors import renamed_state, ties_as_text
from tensorkeep.transport import ByteRange

_SPARE_NBYTES: Final = 4096
"""Spaces at the end of a rewritten header, so that the next edits have room."""

_FIRST_METADATA: Final = {"format": "pt"}
"""Some libraries refuse a file that has metadata without this."""


def edit(
    path: str | os.PathLike[str],
    *,
    set_metadata: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    durable: bool = True,
) -> None:
    """Change metadata and tensor names of a checkpoint, in all files and the index at once or not at all.

    A header that fits into the space of the old one is replaced in place, however large the file. Otherwise the
    kernel copies the file, which then has room for more edits. Killed at any instant, the checkpoint is the old or
    the new one. Digests of tensors stay the same, digests of headers are computed again, and the index loses the
    SHA-256 of edited files; `add_sha256` restores it. A file that is a symbolic link, or has other names, becomes a
    separate file, and the original stays as it is.

    Args:
        path: A directory, an index or a single file; all shards get the same metadata.
        set_metadata: Free text by key, added or replaced; a file's first metadata gets `"format": "pt"` too, which
            other libraries require.
        unset: Keys to remove; missing keys are ignored.
        rename: Old name to new, for those that change; or a function that returns the new name of each.
        durable: Whether to wait until everything is on the disk (fsync).

    Raises:
        TensorNotFoundError: If no tensor has a name to rename.
        RefusedError: If two tensors would have one name, a metadata key is to be both set and removed, or a key is
            the one that holds the digests or the state.
        TypeError: If a name, key or value is not text.
        HeaderError: If a name or text cannot be encoded as UTF-8, or is reserved by the format; or the file is not a
            safetensors file.
        LimitError: If a header would be longer than any reader accepts.
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If the checkpoint is not whole.
        IndexFileError: If the file is not an index.
        UnsupportedError: If there are several checkpoints, or the file is one of several shards.
        BusyError: If another process is saving there.
        TransportError: If the directory is not writable, or a system call fails otherwise.

    Examples:
        >>> tensorkeep.edit("model.safetensors", rename={"head.bias": "bias"})
        >>> "bias" in tensorkeep.open("model.safetensors")
        True
    """
    added = dict(_checked_metadata(set_metadata))
    removed = frozenset([unset] if isinstance(unset, str) else unset)
    _MetadataEdit(added, removed, {}).check()
    with edit_session(path, durable=durable) as session:
        tensors = session.tensors
        _refuse_encrypted(session)
        every = {} if rename is None else dict(zip(tensors, tensors.rename(rename), strict=True))
        renamed = {old: new for old, new in every.items() if old != new}
        metadata = _MetadataEdit(added, removed, every if renamed else {})
        names = _stored_names(session, renamed)
        edits = _Edits(names, renamed, metadata, renamed_state(session.tensors.state, renamed))
        heads = {file: _new_head(shard, edits) for file, shard in session.shards.items() if _is_touched(shard, edits)}
        if not heads and not renamed:
            return
        for file, head in heads.items():
            _stage(session, file, head)
        _stage_index_and_commit(session, edits, heads)


class _MetadataEdit(msgspec.Struct, frozen=True):
    """Changes of free text.

    Attributes:
        added: Text by key.
        removed: Keys.
        names: Old name to new of every tensor, for what metadata say of single ones; empty if none is renamed.
    """

    added: dict[str, str]
    removed: frozenset[str]
    names: dict[str, str]

    def check(self) -> None:
        for key in sorted(self.added.keys() & self.removed):
            raise RefusedError(f"metadata `{key}` is to be both set and removed")
        for key, what in ((SEAL_KEY, "the digests"), (STATE_KEY, "the description of the state")):
            if key in self.added or key in self.removed:
                raise RefusedError(f"metadata `{key}` holds {what}, which only changes with the tensors")
        metadata_to_write(self.added)

    def applied_to(self, shard: TensorFile) -> dict[str, str] | None:
        before = rename_texts(shard.metadata, self.names) if self.names else shard.metadata
        first = {} if before or not self.added else _FIRST_METADATA
        after = {key: text for key, text in (first | before | self.added).items() if key not in self.removed}
        return after if after or shard.has_metadata else None


class _Edits(msgspec.Struct, frozen=True):
    """All changes.

    Attributes:
        names: Old name to new, of what the files store.
        renamed: The same for all tensors, also for those that share memory with others.
        metadata: Changes of free text.
        state: The description of the state after the changes; None if there is none.
    """

    names: dict[str, str]
    renamed: dict[str, str]
    metadata: _MetadataEdit
    state: State | None

    def texts_of(self, shard: TensorFile) -> dict[str, str] | None:
        """Return all metadata of the new header except the digests."""
        free = self.metadata.applied_to(shard)
        if shard.state_text is None or self.state is None:
            return free
        return {**ties_as_text(self.state.aliases), **(free or {}), STATE_KEY: emit_state(self.state)}


def _refuse_encrypted(session: EditSession) -> None:
    for shard in session.shards.values():
        if ENCRYPTION_KEY in shard.metadata:
            raise UnsupportedError(
                "an encrypted file is never changed, only written again",
                path=shard.path,
                hint="tensorkeep.reshard(path, directory, encrypt=key, rename=...) writes another one",
            )


def _checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping of str to str, not {type(metadata).__name__}")
    return metadata or {}


def _stored_names(session: EditSession, renamed: Mapping[str, str]) -> dict[str, str]:
    """Return old name to new, for everything that the files store: tensors, and pieces of split tensors."""
    tensors = session.tensors
    splits = tensors.splits
    stored = {old: new for old, new in renamed.items() if old not in splits and old not in tensors.aliases}
    for tensor in splits:
        for piece in pieces_in_order(tensor, splits[tensor]) or ():
            stored[piece.name] = Piece(renamed.get(tensor, tensor), piece.region).name
    for name, n in Counter([*stored.values(), *(renamed.get(tensor, tensor) for tensor in splits)]).items():
        if n > 1:
            raise RefusedError(f"a tensor and a piece of another would be called `{name}`", tensor=name)
    return {old: new for old, new in stored.items() if old != new}


def _is_touched(shard: TensorFile, edits: _Edits) -> bool:
    before = shard.metadata if shard.has_metadata else None
    state_changes = edits.renamed and shard.state_text is not None
    return (
        state_changes
        or edits.metadata.applied_to(shard) != before
        or not edits.names.keys().isdisjoint(shard.entries)
    )


def _new_head(shard: TensorFile, edits: _Edits) -> bytes:
    """Encode the new header: as long as the old one if it fits there, otherwise with room for more edits."""
    head = _encode(shard, edits, shard.data_start)
    if len(head) == shard.data_start:
        return head
    return _encode(shard, edits, min(len(head) + _SPARE_NBYTES, MAX_HEADER_NBYTES))


def _encode(shard: TensorFile, edits: _Edits, room: int) -> bytes:
    entries = {edits.names.get(name, name): entry for name, entry in shard.entries.items()}
    after = edits.texts_of(shard)
    if shard.seal is None:
        return emit_header(entries, after, room=room)
    return emit_sealed_header(entries, after, shard.seal.tensor_digests(), index=shard.seal.index, room=room)


def _stage(session: EditSession, file: str, head: bytes) -> None:
    shard = session.shards[file]
    if len(head) == shard.data_start and session.can_be_finished and _is_its_own(shard.path):
        session.staging.patch(file, head)
        return
    with session.staging.file(file) as sink:
        sink.preallocate(len(head) + shard.nbytes)
        sink.write([head])
        sink.copy_from(shard.source, ByteRange(shard.data_start, shard.source.nbytes))


def _is_its_own(path: str) -> bool:
    """Say whether writing to the file changes no file of another name."""
    return not os.path.islink(path) and os.stat(path).st_nlink == 1 and os.access(path, os.W_OK)


def _stage_index_and_commit(session: EditSession, edits: _Edits, heads: Mapping[str, bytes]) -> None:
    """Commit; the index is absent while names in it are wrong, for readers that know nothing of transactions."""
    index, index_file = session.index, session.location.index
    after = None if index is None else _renamed_index(index, edits, _records(index, session.shards, heads))
    if after is None or index_file is None or after == index:
        session.staging.commit()
        return
    session.stage_index(after, index_file)
    session.staging.commit(first=[index_file] if edits.names else [], last=index_file)


def _records(
    index: Index, shards: Mapping[str, TensorFile], heads: Mapping[str, bytes]
) -> dict[str, ShardRecord] | None:
    """Return the records, new ones for files that change, without a SHA-256, which was not computed."""
    if index.shards is None:
        return None
    new = dict(index.shards)
    for file, head in heads.items():
        nbytes = len(head) + shards[file].nbytes
        new[file] = ShardRecord(nbytes, digest_of(head).hex(), blocks=index.shards[file].blocks)
    return new


def _renamed_index(index: Index, edits: _Edits, records: dict[str, ShardRecord] | None) -> Index:
    names = edits.names
    splits: dict[str, tuple[str, ...]] = {}
    for tensor, stored in index.splits.items():
        pieces = tuple(names.get(name, name) for name in stored)
        splits[_tensor_of(tensor, stored, pieces)] = pieces
    return Index(
        {names.get(name, name): file for name, file in index.weight_map.items()},
        index.metadata,
        records,
        splits,
        None if index.state is None or edits.state is None else emit_state(edits.state),
    )


def _tensor_of(tensor: str, before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """Return the new name of a split tensor from the new names of its pieces."""
    return after[0].removesuffix(before[0].removeprefix(tensor))
