"""A push to a store: nothing can be renamed there, so files arrive first and one conditional write shows them.

1. Files with tensors are sent under names made of their digests, so that equal names mean equal bytes: nothing is
   overwritten, two pushes cannot mix, and what a killed one sent is found by the next. Signed names stay as they are.
2. The small files beside them follow.
3. One conditional write replaces the index that was there at the beginning, and no other. **This is the commit.**
4. What only the old index names is removed.

A checkpoint of one file is one object, whose write is the commit; but where an index is, it gets an index too, since
readers would find the old one first.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from tensorkeep.checkpoint import (
    ExistingIndex,
    FileNames,
    OldFiles,
    destination_exists,
    existing_index,
    remove_objects,
)
from tensorkeep.errors import AccessDeniedError, SourceMissingError, TransportError, UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import open_file
from tensorkeep.layout import Index, ShardRecord, blocks_name, emit_index
from tensorkeep.limits import MAX_SIGNATURE_NBYTES
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.publishing._package import CARD, LocalFile, Package
from tensorkeep.publishing._pushed import Push
from tensorkeep.publishing._signatures import stale_among
from tensorkeep.transport import Body, ByteRange, RemotePath, open_source

_N_UPLOADS: Final = 4
_AS_STORED: Final = OpenOptions(as_stored=True)

_number_and_suffix = re.compile(r"(?:-[0-9]{5,}-of-[0-9]{5,})?\.[A-Za-z0-9]+$").search


class _Plan(msgspec.Struct, frozen=True):
    """What a push does.

    Attributes:
        old: The index in the store, or None.
        names: Name of each file of tensors here to its name there.
        unchanged: Those of them that are there already, by their names here.
        others: Small files to send: name here to name there.
        kept: Small files that are left as they are there.
        index: What the new index says, by names there; None if there will be none.
        index_name: Its name.
    """

    old: ExistingIndex | None
    names: dict[str, str]
    unchanged: tuple[str, ...]
    others: dict[str, str]
    kept: tuple[str, ...]
    index: Index | None
    index_name: str | None


def push_to_store(
    new: Package,
    directory: RemotePath,
    *,
    overwrite: bool,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> Push:
    """Publish files in a directory of a store."""
    names = new.names
    if names is None:
        raise UnsupportedError(
            "a directory with a manifest has no index that one write could replace",
            path=str(directory),
            hint="Push the checkpoint in it by its index or file, or push to the Hub",
        )
    with directory.listing_cache() as there:
        plan = _plan(new, names, there)
        if not overwrite:
            _refuse_another(new, plan, there)
    sent = {name: new.files[name] for name in (*new.shards, *plan.others) if name not in plan.unchanged}
    targets = plan.names | plan.others
    with directory.listing_cache() as there:
        removed = _obsolete(names, plan, there, [targets[name] for name in sent])
    index_text = None if plan.index is None else _text_of(new, plan.index)
    if not dry_run:
        _send(new, plan, sent, directory, progress)
        _commit(plan, index_text, directory)
        _remove(removed, directory)
    sizes = {targets[name]: file.nbytes for name, file in sent.items()}
    if plan.index_name is not None and index_text is not None:
        sizes[plan.index_name] = len(index_text)
    unchanged = tuple(sorted(plan.names[name] for name in plan.unchanged))
    return Push(
        url=str(directory), sent=sizes, unchanged=unchanged, removed=removed, kept=plan.kept, is_dry_run=dry_run
    )


def _plan(new: Package, names: FileNames, directory: RemotePath) -> _Plan:
    old = existing_index(directory, filter(names.is_index, names.entries))
    index = new.index if new.index is not None or old is None else _index_of(new)
    targets = {name: name for name in new.shards}
    if index is not None and not new.is_signed:
        targets = {name: _target(name, new.files[name], old) for name in new.shards}
    elif index is not None and old is not None:
        raise UnsupportedError(
            "the signature is of these file names, and a checkpoint that readers may be reading has them",
            path=str(directory),
            hint="Push to another directory, or sign the checkpoint where it is published",
        )
    unchanged = [name for name in new.shards if index and _has(directory, targets[name], new.files[name].nbytes)]
    kept = tuple(name for name in (CARD,) if name in new.others and _has(directory, name))
    new.refuse_unsigned(kept, str(directory))
    beside = {blocks_name(name): blocks_name(target) for name, target in targets.items()}
    others = {name: beside.get(name, name) for name in new.others if name not in kept}
    index_name = None if index is None else old.name if old else new.index_name
    return _Plan(old, targets, tuple(unchanged), others, kept, index and index.renamed(targets), index_name)


def _index_of(new: Package) -> Index:
    """Make the index of a checkpoint without one."""
    weight_map, records = {}, {}
    for name in new.shards:
        with open_file(new.files[name].path, _AS_STORED) as file:
            weight_map.update(dict.fromkeys(file.entries, name))
            records[name] = ShardRecord(new.files[name].nbytes, file.header_digest())
    return Index(weight_map, shards=records)


def _target(name: str, file: LocalFile, old: ExistingIndex | None) -> str:
    """Return the name of a file there: what the old index calls the same bytes, or a new one."""
    digest = _digest_of(file.path)
    known = (old.index.shards if old and old.index else None) or {}
    for other, record in known.items():
        if digest is not None and (record.nbytes, record.header) == (file.nbytes, digest):
            return other
    ending = _ending(name)
    return f"{name.removesuffix(ending)}-{digest[:16] if digest else secrets.token_hex(8)}{ending}"


def _digest_of(path: str) -> str | None:
    """Return the digest of a header that has the digests of all tensors, and so identifies the file."""
    if not path.endswith(".safetensors"):
        return None
    with open_file(path, _AS_STORED) as file:
        return None if file.seal is None else file.header_digest()


def _ending(name: str) -> str:
    found = _number_and_suffix(name)
    return found[0] if found else ""


def _has(directory: RemotePath, name: str, nbytes: int | None = None) -> bool:
    """Say whether there is a file, of this size."""
    try:
        return directory.joined(name).version().nbytes == nbytes or nbytes is None
    except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny what is missing
        return False


def _refuse_another(new: Package, plan: _Plan, directory: RemotePath) -> None:
    found = [plan.old.name] if plan.old else [name for name in new.shards if _has(directory, name)]
    if found and len(plan.unchanged) < len(new.shards):
        raise destination_exists(directory, found)


def _obsolete(names: FileNames, plan: _Plan, directory: RemotePath, sent: Collection[str]) -> tuple[str, ...]:
    """Return what only the old index names, and signatures of what changes, as far as the store lists them."""
    old, new = plan.old, {*plan.names.values(), *plan.others.values(), plan.index_name or ""}
    gone: frozenset[str] = frozenset()
    if old is not None and old.index is not None:
        there = OldFiles.among({old.name, *old.index.files}, lambda _: old.index, names)
        gone = there.obsolete(new)
    try:
        listed = set(directory.names() or ())
    except TransportError:  # nothing is there, or it may not be listed
        listed = set()
    changed = {*gone, *sent, *filter(None, [plan.index_name])}
    return tuple(sorted(gone | stale_among(listed - new, lambda name: _read(directory.joined(name)), changed)))


def _read(path: RemotePath) -> bytes:
    source = path.open()
    return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_SIGNATURE_NBYTES + 1))))


def _text_of(new: Package, index: Index) -> bytes:
    """Return the text of the index: as it is here where all names are the same."""
    if new.index is not None and new.index_name is not None and index == new.index:
        source = open_source(new.files[new.index_name].path, backend="pread")
        return bytes(source.read(ByteRange(0, source.nbytes)))
    return emit_index(index)


def _send(
    new: Package,
    plan: _Plan,
    sent: dict[str, LocalFile],
    directory: RemotePath,
    progress: Callable[[int, int], None] | None,
) -> None:
    meter = ProgressMeter(progress, sum(file.nbytes for file in sent.values()))
    shards = [name for name in sent if name in plan.names]
    others = [name for name in sent if name not in plan.names]

    def send(name: str) -> None:
        directory.joined((plan.names | plan.others)[name]).put(_body_of(sent[name]), on_written=meter.counting())

    for batch in (shards, others) if plan.index is not None else (others, shards):
        parallel_map(send, batch, n_threads=_N_UPLOADS, meter=meter)
    new.refuse_changes()


def _body_of(file: LocalFile) -> Body:
    source = open_source(file.path, backend="pread")
    return Body(file.nbytes, lambda: source.pieces(ByteRange(0, file.nbytes)))


def _commit(plan: _Plan, index_text: bytes | None, directory: RemotePath) -> None:
    if index_text is not None and plan.index_name is not None:
        directory.joined(plan.index_name).swap(index_text, plan.old.version if plan.old else None)


def _remove(removed: tuple[str, ...], directory: RemotePath) -> None:
    errors = remove_objects(directory, removed)
    if errors:
        raise errors[0].with_fields(
            message=f"the checkpoint is published, but files of the old one are left: {errors[0].message}"
        ) from None
