"""Names and metadata of a finished checkpoint, changed without a copy of its data where the headers have room."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint._change import Change, changing
from tensorkeep.checkpoint._checkpoint import Checkpoint
from tensorkeep.checkpoint._index import Index, ShardRecord
from tensorkeep.checkpoint._pieces import Piece, pieces_in_order
from tensorkeep.digests import digest_of
from tensorkeep.errors import RefusedError
from tensorkeep.formats.safetensors import SEAL_KEY, emit_header, emit_sealed_header, metadata_to_write
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors import TensorFile
from tensorkeep.transport import ByteRange

__all__ = ["edit"]

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
        names = _stored_names(change, rename)
        heads = {
            file: _new_head(shard, names, metadata)
            for file, shard in change.shards.items()
            if _is_touched(shard, names, metadata)
        }
        if not heads:
            return
        for file, head in heads.items():
            _stage(change, file, head)
        _stage_index_and_commit(change, names, heads)


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
        if SEAL_KEY in self.added or SEAL_KEY in self.removed:
            raise RefusedError(f"metadata `{SEAL_KEY}` holds the digests, which only change with the bytes")
        metadata_to_write(self.added)

    def applied_to(self, shard: TensorFile) -> dict[str, str] | None:
        before = shard.metadata
        first = {} if before or not self.added else _FIRST_METADATA
        after = {key: text for key, text in (first | before | self.added).items() if key not in self.removed}
        return after if after or shard.has_metadata else None


def _checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a mapping of text by key, not {type(metadata).__name__}")
    return metadata or {}


def _stored_names(change: Change, rename: Mapping[str, str] | Callable[[str], str] | None) -> dict[str, str]:
    """Return old name to new, for all that the files store: tensors, and pieces of those that are cut."""
    if rename is None:
        return {}
    tensors = change.tensors
    splits = tensors.index.splits if isinstance(tensors, Checkpoint) else {}
    renamed = dict(zip(tensors, tensors.rename(rename), strict=True))
    stored = {old: new for old, new in renamed.items() if old not in splits}
    for tensor in splits:
        for piece in pieces_in_order(tensor, splits[tensor]) or ():
            stored[piece.name] = Piece(renamed[tensor], piece.start, piece.stop).name
    for name, n in Counter([*stored.values(), *(renamed[tensor] for tensor in splits)]).items():
        if n > 1:
            raise RefusedError(f"a tensor and a piece of another would be called `{name}`", tensor=name)
    return {old: new for old, new in stored.items() if old != new}


def _is_touched(shard: TensorFile, names: Mapping[str, str], metadata: _MetadataEdit) -> bool:
    before = shard.metadata if shard.has_metadata else None
    return metadata.applied_to(shard) != before or not names.keys().isdisjoint(shard)


def _new_head(shard: TensorFile, names: Mapping[str, str], metadata: _MetadataEdit) -> bytes:
    """Encode the new header: as long as the old one if it fits there, otherwise with room for more edits."""
    head = _encode(shard, names, metadata, shard.data_start)
    if len(head) == shard.data_start:
        return head
    return _encode(shard, names, metadata, min(len(head) + _SPARE_NBYTES, MAX_HEADER_NBYTES))


def _encode(shard: TensorFile, names: Mapping[str, str], metadata: _MetadataEdit, room: int) -> bytes:
    entries = {names.get(name, name): entry for name, entry in shard.entries.items()}
    after = metadata.applied_to(shard)
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


def _stage_index_and_commit(change: Change, names: Mapping[str, str], heads: Mapping[str, bytes]) -> None:
    """Switch; readers that know nothing of transactions find no index while names in it are wrong."""
    index, index_file = change.index, change.location.index
    after = None if index is None else _renamed_index(index, names, _records(index, change.shards, heads))
    if after is None or index_file is None or after == index:
        change.staging.commit()
        return
    change.stage_index(after, index_file)
    change.staging.commit(first=[index_file] if names else [], last=index_file)


def _records(
    index: Index, shards: Mapping[str, TensorFile], heads: Mapping[str, bytes]
) -> dict[str, ShardRecord] | None:
    """Make the records of files that change anew, without a SHA-256, which nobody has computed."""
    if index.shards is None:
        return None
    new = {file: ShardRecord(len(head) + shards[file].nbytes, digest_of(head).hex()) for file, head in heads.items()}
    return {**index.shards, **new}


def _renamed_index(index: Index, names: Mapping[str, str], records: dict[str, ShardRecord] | None) -> Index:
    splits: dict[str, tuple[str, ...]] = {}
    for tensor, stored in index.splits.items():
        pieces = tuple(names.get(name, name) for name in stored)
        splits[_tensor_of(tensor, stored, pieces)] = pieces
    return Index(
        {names.get(name, name): file for name, file in index.weight_map.items()}, index.metadata, records, splits
    )


def _tensor_of(tensor: str, before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """Return the name of a tensor that is cut, by what its pieces are called now."""
    return after[0].removesuffix(before[0].removeprefix(tensor))
