"""What a push to a store does: which files it sends, by which names, and what it replaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Final, TypeVar

import msgspec

from tensorkeep.checkpoint import (
    ExistingIndex,
    FileNames,
    existing_index,
    sha256_of,
)
from tensorkeep.deltas import DOCUMENT_NAME
from tensorkeep.errors import AccessDeniedError, SourceMissingError, UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import open_file
from tensorkeep.layout import Index, ShardRecord, blocks_name
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.publishing._local_files import LocalFile
from tensorkeep.publishing._package import CARD, Package
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, RemotePath, open_source

_N_QUESTIONS: Final = 8
_PIECE_NBYTES: Final = 2**23
_AS_STORED: Final = OpenOptions(as_stored=True)

_T = TypeVar("_T")

_number_and_suffix = re.compile(r"(?:-[0-9]{5,}-of-[0-9]{5,})?\.[A-Za-z0-9]+$").search


class StorePlan(msgspec.Struct, frozen=True):
    """What a push does.

    Attributes:
        old: The index in the store, or None.
        names: Name of each file of tensors here to its name there.
        others: Name of each small file here to its name there.
        unchanged: What is there already, by its names here.
        kept: Small files that are left as they are there.
        replaced: Names by which readers find another checkpoint there.
        index: What the new index says, by names there; None if there will be none.
        index_name: Its name.
    """

    old: ExistingIndex | None
    names: dict[str, str]
    others: dict[str, str]
    unchanged: tuple[str, ...]
    kept: tuple[str, ...]
    replaced: tuple[str, ...]
    index: Index | None
    index_name: str | None


def plan_for_store(new: Package, names: FileNames, directory: RemotePath) -> StorePlan:
    """Look at what is in a directory of a store, and say what a push does."""
    old = existing_index(directory, filter(names.is_index, names.entries))
    index = new.index if new.index is not None or old is None else _index_of(new)
    new.refuse_beside({DOCUMENT_NAME} if _has(directory, DOCUMENT_NAME) else {}, str(directory))
    is_renamed = index is not None and not new.is_signed
    targets = each(new.shards, lambda name: _target(name, new) if is_renamed else name)
    is_published = index is not None and index.shards is not None and old is not None and old.index == index
    is_there = has_size if is_renamed or is_published else _has_bytes
    same = each(new.shards, lambda name: is_there(directory.joined(targets[name]), new.files[name]))
    new_index = index and index.renamed(targets)
    index_name = None if index is None else old.name if old else new.index_name
    replaced = [name for name in names.entries if name not in {index_name, *targets} and _has(directory, name)]
    replaced += [old.name] if old is not None and old.index != new_index else []
    if not is_renamed:
        overwritten = [name for name in new.shards if not same[name] and _has(directory, name)]
        if (overwritten and len(targets) > 1) or (index is not None and old is not None and replaced):
            raise _cannot_replace(directory, [*replaced, *overwritten])
        replaced += overwritten
    kept = tuple(name for name in (CARD,) if name in new.others and _has(directory, name))
    new.refuse_unsigned(kept, str(directory))
    beside = {blocks_name(name): blocks_name(target) for name, target in targets.items()}
    others = {name: beside.get(name, name) for name in new.others if name not in kept}
    same |= each(others, lambda name: _has_bytes(directory.joined(others[name]), new.files[name]))
    unchanged = tuple(name for name, is_same in same.items() if is_same)
    return StorePlan(old, targets, others, unchanged, kept, tuple(replaced), new_index, index_name)


def each(names: Collection[str], call: Callable[[str], _T]) -> dict[str, _T]:
    """Return what a function says of each name; it asks the store, or reads a file."""
    n_threads = min(_N_QUESTIONS, len(names))
    return dict(zip(names, parallel_map(call, names, n_threads=n_threads, meter=ProgressMeter(None, 0)), strict=True))


def _cannot_replace(directory: RemotePath, found: Collection[str]) -> UnsupportedError:
    return UnsupportedError(
        "these files must keep their names, and readers may be reading other files with the same names",
        path=str(directory),
        found=listed(found),
        hint="Push to another directory",
    )


def _index_of(new: Package) -> Index:
    """Make the index of a checkpoint without one."""
    weight_map, records = {}, {}
    for name in new.shards:
        if not name.endswith(".safetensors"):
            raise UnsupportedError(
                "a file of this format cannot replace a checkpoint with an index",
                path=new.files[name].path,
                hint="Push to another directory",
            )
        with open_file(new.files[name].path, _AS_STORED) as file:
            weight_map.update(dict.fromkeys(file.entries, name))
            records[name] = ShardRecord(new.files[name].nbytes, file.header_digest())
    return Index(weight_map, shards=records)


def _target(name: str, new: Package) -> str:
    """Return the name of a file there, made of a digest; that in its header counts only if it was compared."""
    file, ending = new.files[name], _ending(name)
    digest = _digest_of(file.path) if new.is_checked else None
    digest = digest or file.sha256 or sha256_of(open_source(file.path, backend="pread"))
    return f"{name.removesuffix(ending)}-{digest[:16]}{ending}"


def _digest_of(path: str) -> str | None:
    """Return the digest of a header that has the digests of all tensors, and so identifies the file."""
    if not path.endswith(".safetensors"):
        return None
    with open_file(path, _AS_STORED) as file:
        return None if file.seal is None else file.header_digest()


def _ending(name: str) -> str:
    found = _number_and_suffix(name)
    return found[0] if found else ""


def _has(directory: RemotePath, name: str) -> bool:
    """Say whether there is a file."""
    return _size_of(directory.joined(name)) is not None


def _size_of(path: RemotePath) -> int | None:
    try:
        return path.version().nbytes
    except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny what is missing
        return None


def has_size(path: RemotePath, file: LocalFile) -> bool:
    """Say whether there is a file of the size that one here has."""
    return _size_of(path) == file.nbytes


def _has_bytes(path: RemotePath, file: LocalFile) -> bool:
    """Say whether a file there has the bytes of one here; read until they differ."""
    if not has_size(path, file):
        return False
    with closing(open_source(file.path, backend="pread")) as here, closing(path.open()) as there:
        starts = range(0, file.nbytes, _PIECE_NBYTES)
        spans = (ByteRange(start, min(start + _PIECE_NBYTES, file.nbytes)) for start in starts)
        return all(bytes(here.read(span)) == bytes(there.read(span)) for span in spans)
