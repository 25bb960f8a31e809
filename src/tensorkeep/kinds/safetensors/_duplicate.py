"""A single file beside an index that does not list it: one checkpoint if both hold the same, else an error.

If they differ, nobody can know which one is meant, and programs disagree: most take the single file. So if both are
equal, the single file is opened, and otherwise neither, wherever they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError
from tensorkeep.kinds.base import OpenOptions
from tensorkeep.kinds.safetensors._examine import Examination, examine, open_shard, read_index
from tensorkeep.kinds.safetensors._file import TensorFile
from tensorkeep.layout import Location
from tensorkeep.limits import MAX_COMPARED_NBYTES
from tensorkeep.transport import ByteRange, is_remote

_PIECE_NBYTES: Final = 8 * 2**20
"""Bytes compared at a time."""


def has_duplicate(location: Location) -> bool:
    """Say whether a single file is beside an index that does not list it."""
    if location.index is None or location.single is None:
        return False
    return location.single not in read_index(location.entry, check=False).weight_map.values()


def without_duplicate(location: Location, options: OpenOptions) -> Location:
    """Return what to open: of two equal ones the single file, unless only the index has nested data."""
    if not has_duplicate(location):
        return location
    alone = msgspec.structs.replace(location, index=None)
    examination = examine(location, options)
    try:
        with open_shard(alone, alone.name, options) as single:
            difference = _difference(single, examination, is_remote=is_remote(location.directory))
            is_plain = single.state_text is None
    finally:
        for shard in examination.files.values():
            shard.close()
    if difference is not None:
        raise different(location, difference)
    knows_more = is_plain and examination.index.state is not None
    return msgspec.structs.replace(location, single=None) if knows_more else alone


def different(location: Location, found: str) -> IntegrityError:
    """Return the error for two checkpoints under one name."""
    return IntegrityError(
        f"{location.single} is next to {location.index}, which does not list it: they are from different saves",
        path=location.directory,
        expected="one of them, or the same tensors in both",
        found=found,
        hint="Open the one that you want by its own path, and move the other away",
    )


def _difference(single: TensorFile, examination: Examination, *, is_remote: bool) -> str | None:
    """Return how a single file and the shards differ; None if they hold the same."""
    damage = next((finding for finding in examination.findings if finding.is_damage), None)
    if damage is not None:
        return str(damage)
    owners = {name: shard for shard in examination.files.values() for name in shard.entries}
    strange = next(iter(owners.keys() ^ single.entries.keys()), None)
    if strange is not None:
        return f"tensor `{strange}` in one of them only"
    if single.state_text != examination.index.state and None not in (single.state_text, examination.index.state):
        return "different nested data"
    pairs = {name: (entry, owners[name]) for name, entry in single.entries.items()}
    return _different_tensor(single, pairs, is_remote=is_remote)


def _different_tensor(
    single: TensorFile, pairs: Mapping[str, tuple[TensorEntry, TensorFile]], *, is_remote: bool
) -> str | None:
    digests = {file: dict(_digests(file)) for file in {single, *(shard for _, shard in pairs.values())}}
    unknown: list[tuple[str, TensorFile]] = []
    for name, (entry, shard) in pairs.items():
        other = shard.entries[name]
        if (entry.dtype, entry.shape) != (other.dtype, other.shape):
            return f"tensor `{name}` as {entry.dtype} {list(entry.shape)} and {other.dtype} {list(other.shape)}"
        if not (digests[single] and digests[shard]):
            unknown.append((name, shard))
        elif digests[single][name] != digests[shard][name]:
            return f"other bytes of tensor `{name}`"
    nbytes = sum(len(single.span_of(name)) for name, _ in unknown)
    if is_remote and nbytes > MAX_COMPARED_NBYTES:
        return f"both, and {nbytes:,} bytes without digests, which are too many to compare over the network"
    differing = (name for name, shard in unknown if not _is_same(name, single, shard))
    return next((f"other bytes of tensor `{name}`" for name in differing), None)


def _digests(file: TensorFile) -> Iterable[tuple[str, bytes]]:
    return zip(file.entries, file.seal.tensor_digests(), strict=True) if file.seal else ()


def _is_same(name: str, one: TensorFile, other: TensorFile) -> bool:
    span, start = one.span_of(name), other.span_of(name).start - one.span_of(name).start
    for at in range(span.start, span.stop, _PIECE_NBYTES):
        stop = min(at + _PIECE_NBYTES, span.stop)
        piece = bytes(one.source.read(ByteRange(at, stop)))
        if piece != bytes(other.source.read(ByteRange(at + start, stop + start))):
            return False
    return True
