"""A push to a store: nothing can be renamed there, so files arrive first and one conditional write shows them.

1. Files with tensors are sent under names made of their digests, so that equal names mean equal bytes: nothing is
   overwritten, two pushes cannot mix, and what a killed one sent is found by the next.
2. The small files beside them follow.
3. One conditional write replaces the index that was there at the beginning, and no other. **This is the commit.**
4. What only the old index names is removed, unless somebody's index names it by now.

A checkpoint of one file is one object, whose write is the commit; but if there is an index already, the new
checkpoint gets one too, since readers would find the old index first. Files that must keep their names, and several
files without an index, can only go where there are no other files with these names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tensorkeep.checkpoint import (
    FileNames,
    OldFiles,
    destination_exists,
    existing_index,
    remove_objects,
)
from tensorkeep.errors import TensorkeepError, TransportError, UnsupportedError
from tensorkeep.layout import Index, emit_index
from tensorkeep.limits import MAX_SIGNATURE_NBYTES
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.publishing._local_files import LocalFile
from tensorkeep.publishing._package import Package
from tensorkeep.publishing._pushed import Push
from tensorkeep.publishing._signatures import stale_among
from tensorkeep.publishing._store_plan import StorePlan, each, has_size, plan_for_store
from tensorkeep.transport import Body, ByteRange, RemotePath, open_source

_N_UPLOADS: Final = 4


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
            "a directory with a manifest has no index that a single write could replace",
            path=str(directory),
            hint="Push the index or file of the checkpoint in it, or push to the Hub",
        )
    with directory.listing_cache() as there:
        plan = plan_for_store(new, names, there)
        if plan.replaced and not overwrite:
            raise destination_exists(directory, plan.replaced)
    sent = {name: new.files[name] for name in (*new.shards, *plan.others) if name not in plan.unchanged}
    targets = plan.names | plan.others
    is_same = plan.old is not None and plan.old.index == plan.index
    index_text = None if is_same or plan.index is None else _text_of(new, plan.index)
    sizes = {targets[name]: file.nbytes for name, file in sent.items()}
    if plan.index_name is not None and index_text is not None:
        sizes[plan.index_name] = len(index_text)
    with directory.listing_cache() as there:
        removed = _obsolete(names, plan, there, sizes)
    if not dry_run:
        _send(new, plan, sent, directory, progress)
        _send_lost(new, plan, directory)
        _commit(plan, index_text, directory)
        _remove(removed, names, directory)
    unchanged = tuple(sorted(targets[name] for name in plan.unchanged))
    return Push(
        url=str(directory), sent=sizes, unchanged=unchanged, removed=removed, kept=plan.kept, is_dry_run=dry_run
    )


def _obsolete(names: FileNames, plan: StorePlan, directory: RemotePath, sent: Collection[str]) -> tuple[str, ...]:
    """Return what only the old index names, and signatures of what changes, as far as the store lists them."""
    old, new = plan.old, {*plan.names.values(), *plan.others.values(), plan.index_name or ""}
    found = {*plan.replaced, *([old.name] if old else [])}
    there = OldFiles.among(found, lambda name: old.index if old and name == old.name else None, names)
    gone = there.obsolete(new)
    try:
        listed_names = set(directory.names() or ())
    except TransportError:  # nothing is there, or it may not be listed
        listed_names = set()
    stale = stale_among(listed_names - new, lambda name: _read(directory.joined(name)), {*gone, *sent})
    return tuple(sorted(gone | stale))


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
    plan: StorePlan,
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


def _send_lost(new: Package, plan: StorePlan, directory: RemotePath) -> None:
    """Send what was there already and is not any more: the push before this one may have removed it since."""
    targets = plan.names | plan.others
    kept = each(plan.unchanged, lambda name: has_size(directory.joined(targets[name]), new.files[name]))
    lost = {name: new.files[name] for name, is_there in kept.items() if not is_there}
    if lost:
        _send(new, plan, lost, directory, None)


def _body_of(file: LocalFile) -> Body:
    source = open_source(file.path, backend="pread")
    return Body(file.nbytes, lambda: source.pieces(ByteRange(0, file.nbytes)))


def _commit(plan: StorePlan, index_text: bytes | None, directory: RemotePath) -> None:
    if index_text is not None and plan.index_name is not None:
        directory.joined(plan.index_name).swap(index_text, plan.old.version if plan.old else None)


def _remove(removed: Collection[str], names: FileNames, directory: RemotePath) -> None:
    """Remove files, except those that are in use again since another push came by."""
    if not removed:
        return
    try:
        now = existing_index(directory, filter(names.is_index, names.entries))
        used = {*now.index.files, *now.index.sidecars, now.name} if now and now.index else set()
        errors = remove_objects(directory, set(removed) - used)
    except TensorkeepError as error:
        errors = [error]
    if errors:
        raise errors[0].with_fields(
            message=f"the checkpoint is published, but files of the old one are left: {errors[0].message}"
        ) from None
