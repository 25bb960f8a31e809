"""Names and metadata of a finished checkpoint, changed without a copy of its data where the headers have room."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint.rewriting._in_place import Change, changing
from tensorkeep.digests import digest_of
from tensorkeep.errors import RefusedError
from tensorkeep.formats.safetensors import (
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
"""Spaces in a header that is written anew, so that the next edits find room."""

_FIRST_METADATA: Final = {"format": "pt"}
"""Libraries that find any metadata want to find this too, and refuse the file otherwise."""


def edit(
    path: str | os.PathLike[str],
    *,
    set_metadata: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    durable: bool = True,
) -> None:
    """Change metadata and names of tensors of a checkpoint, all files and the index at once or not at all.

    A header that fits where the old one stood is replaced in place, however large the file; otherwise the kernel
    copies the file, which then has room for more edits. Killed at any instant, the checkpoint is the old or the new
    one. Digests of tensors stay as they are, those of headers are made anew, and the index loses the SHA-256 of
    files that change: `add_sha256` makes it again. A file that is a symbolic link, or has other names, becomes a file
    of its own, and what it led to stays as it is.

    Args:
        path: A directory, an index or a single file; all shards get the same metadata.
        set_metadata: Free text by key, added or replaced; a file's first metadata gets `"format": "pt"` too, which
            other libraries ask for.
        unset: Keys to remove; it is no error if there is none of them.
        rename: Old name to new, for those that change; or a function that gives the new name of each.
        durable: Whether to wait until the disk has everything (fsync).

    Raises:
        TensorNotFoundError: If there is none of a name to rename.
        RefusedError: If two tensors would have one name, or a key of metadata is to be set and removed, or is the one
            that holds the digests.
        TypeError: If a name, key or text is not text.
        HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself; or the file
            is no safetensors file.
        LimitError: If a header would be longer than any reader accepts.
        SourceMissingError: If there is no checkpoint, or a shard is missing.
        IntegrityError: If it is not whole.
        IndexFileError: If the index is none.
        UnsupportedError: If there are several checkpoints, or the file is one of several shards.
        BusyError: If another process is saving there.
        TransportError: If the directory is not writable, or the system fails otherwise.
    """
    metadata = _MetadataEdit(
        dict(_checked_metadata(set_metadata)), frozenset([unset] if isinstance(unset, str) else unset)
    )
    metadata.check()
    with changing(path, durable=durable) as change:
        tensors = change.tensors
        renamed = {} if rename is None else dict(zip(tensors, tensors.rename(rename), strict=True))
        renamed = {old: new for old, new in renamed.items() if old != new}
        names = _stored_names(change, renamed)
        edits = _Edits(names, renamed, metadata, renamed_state(change.tensors.state, renamed))
        heads = {file: _new_head(shard, edits) for file, shard in change.shards.items() if _is_touched(shard, edits)}
        if not heads and not renamed:
            return
        for file, head in heads.items():
            _stage(change, file, head)
        _stage_index_and_commit(change, edits, heads)


class _MetadataEdit(msgspec.Struct, frozen=True):
    """What becomes of free text.

    Attributes:
        added: Text by key.
        removed: Keys.
    """

    added: dict[str, str]
    removed: frozenset[str]

    def check(self) -> None:
        for key in sorted(self.added.keys() & self.removed):
            raise RefusedError(f"metadata `{key}` is to be set and removed")
        for key, what in ((SEAL_KEY, "the digests"), (STATE_KEY, "what is said of the state")):
            if key in self.added or key in self.removed:
                raise RefusedError(f"metadata `{key}` holds {what}, which only changes with the tensors")
        metadata_to_write(self.added)

    def applied_to(self, shard: TensorFile) -> dict[str, str] | None:
        before = shard.metadata
        first = {} if before or not self.added else _FIRST_METADATA
        after = {key: text for key, text in (first | before | self.added).items() if key not in self.removed}
        return after if after or shard.has_metadata else None


class _Edits(msgspec.Struct, frozen=True):
    """All that is to change.

    Attributes:
        names: Old name to new, of what the files store.
        renamed: The same of all tensors, also of those that share the memory of others.
        metadata: What becomes of free text.
        state: What is said of the state after that; None where nothing is.
    """

    names: dict[str, str]
    renamed: dict[str, str]
    metadata: _MetadataEdit
    state: State | None

    def texts_of(self, shard: TensorFile) -> dict[str, str] | None:
        """Return all texts of the new header but the digests."""
        free = self.metadata.applied_to(shard)
        if shard.state_text is None or self.state is None:
            return free
        return {**ties_as_text(self.state.aliases), **(free or {}), STATE_KEY: emit_state(self.state)}


def _checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a mapping of text by key, not {type(metadata).__name__}")
    return metadata or {}


def _stored_names(change: Change, renamed: Mapping[str, str]) -> dict[str, str]:
    """Return old name to new, for all that the files store: tensors, and pieces of those that are cut."""
    tensors = change.tensors
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
    says_more = edits.renamed and shard.state_text is not None
    return says_more or edits.metadata.applied_to(shard) != before or not edits.names.keys().isdisjoint(shard.entries)


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


def _stage(change: Change, file: str, head: bytes) -> None:
    shard = change.shards[file]
    if len(head) == shard.data_start and change.can_be_finished and _is_its_own(shard.path):
        change.staging.patch(file, head)
        return
    with change.staging.file(file) as sink:
        sink.preallocate(len(head) + shard.nbytes)
        sink.write([head])
        sink.copy_from(shard.source, ByteRange(shard.data_start, shard.source.nbytes))


def _is_its_own(path: str) -> bool:
    """Say whether a file can be written to without changing anything but the file of that name."""
    return not os.path.islink(path) and os.stat(path).st_nlink == 1 and os.access(path, os.W_OK)


def _stage_index_and_commit(change: Change, edits: _Edits, heads: Mapping[str, bytes]) -> None:
    """Switch; readers that know nothing of transactions find no index while names in it are wrong."""
    index, index_file = change.index, change.location.index
    after = None if index is None else _renamed_index(index, edits, _records(index, change.shards, heads))
    if after is None or index_file is None or after == index:
        change.staging.commit()
        return
    change.stage_index(after, index_file)
    change.staging.commit(first=[index_file] if edits.names else [], last=index_file)


def _records(
    index: Index, shards: Mapping[str, TensorFile], heads: Mapping[str, bytes]
) -> dict[str, ShardRecord] | None:
    """Make the records of files that change anew, without a SHA-256, which nobody has computed."""
    if index.shards is None:
        return None
    new = {file: ShardRecord(len(head) + shards[file].nbytes, digest_of(head).hex()) for file, head in heads.items()}
    return {**index.shards, **new}


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
    """Return the name of a tensor that is cut, by what its pieces are called now."""
    return after[0].removesuffix(before[0].removeprefix(tensor))
