"""Making a patch: two checkpoints compared tensor by tensor, block by block."""

from __future__ import annotations

import os
from contextlib import ExitStack

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.deltas.encoding import blocks_of, differences, encode
from tensorkeep.deltas.reading import (
    N_THREADS,
    Change,
    Content,
    Description,
    End,
    content_of,
    contents_of,
    digest_of_contents,
    texts_of,
)
from tensorkeep.digests import new_hasher
from tensorkeep.errors import IntegrityError
from tensorkeep.parallel import Progress, ProgressMeter, parallel_map
from tensorkeep.patches._spool import Spool, SpooledDelta, spool_directory
from tensorkeep.patches._summary import Summary, refuse_own_source, refuse_target, write_patch
from tensorkeep.patches.opening import Checkpoint, opened
from tensorkeep.tensors import LazyTensor, LazyTensors


def make(
    old: Checkpoint,
    new: Checkpoint,
    path: str | os.PathLike[str],
    *,
    reversible: bool = False,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
) -> Summary:
    """Write a patch: what turns one checkpoint into another, bit for bit.

        tensorkeep.patches.make("step-100", "step-110", "110.patch.safetensors")
        tensorkeep.patches.apply("worker/model", "110.patch.safetensors")

    A patch is a safetensors file. It holds packed differences for tensors that keep their dtype and shape, the new
    tensors where one is added or replaced, and the digests of both checkpoints. Tensors with equal recorded digests
    are not read; others are read once, in blocks, and compared with their digests.

    Args:
        old: The checkpoint that the patch is for, of any kind: a path, a URL, or what is open.
        new: The checkpoint that it makes.
        path: The file to write, or a URL. It appears complete or not at all.
        reversible: Whether tensors that are removed, or replaced by others of another dtype or shape, are kept in the
            patch, so that `undo` works. All other changes can be undone in any case.
        overwrite: Whether to replace a file at `path`.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes compared so far and the total, by one thread at a time.

    Returns:
        What was written.

    Raises:
        DestinationExistsError: If there is something at `path`, and `overwrite` is false.
        RefusedError: If `path` is a file of one of the checkpoints.
        IntegrityError: If a tensor that is compared is damaged, by its digest.
        DtypeError: If safetensors has no such dtype (C32, C128).
        TensorkeepError: If `tensorkeep.open` or `tensorkeep.save` would raise it.
    """
    refuse_target(path, overwrite=overwrite)
    with ExitStack() as stack:
        before, after = (opened(end, stack) for end in (old, new))
        refuse_own_source(path, (before, after))
        spool = stack.enter_context(Spool(spool_directory(path)))
        compared = _compare(before, after, spool, progress)
        olds = {name: pair.old for name, pair in compared.items()}
        news = {name: pair.new for name, pair in compared.items()}
        olds |= contents_of(before, [name for name in before if name not in compared])
        news |= contents_of(after, [name for name in after if name not in compared])
        parts = _Parts()
        changes = {
            name: parts.change(name, before.get(name), after.get(name), compared.get(name), keeps_old=reversible)
            for name in olds | news
            if olds.get(name) != news.get(name)
        }
        texts = texts_of(before), texts_of(after)
        is_same = texts[0] == texts[1]
        description = Description(
            old=End(digest_of_contents(olds), None if is_same else texts[0]),
            new=End(digest_of_contents(news), None if is_same else texts[1]),
            tensors=changes,
            equal=_equal_to_changed(changes, olds),
        )
        return write_patch(path, description, parts.to_write, durable=durable)


class _Compared(msgspec.Struct, frozen=True, eq=False):
    """A tensor of both checkpoints: what it is in each, and how it differs; no delta if it was not read."""

    old: Content
    new: Content
    delta: SpooledDelta | None = None


class _Parts:
    """The tensors of a patch; equal differences, of tensors with several names, are one."""

    def __init__(self) -> None:
        self.to_write: dict[str, TensorToWrite] = {}
        self._names: dict[tuple[Content, Content], str] = {}

    def change(
        self, name: str, old: LazyTensor | None, new: LazyTensor | None, pair: _Compared | None, *, keeps_old: bool
    ) -> Change:
        """Take what a change needs, and describe it."""
        if pair is not None and pair.delta is not None:
            stored = self._names.setdefault((pair.old, pair.new), f"delta/{name}")
            if stored not in self.to_write:
                self.to_write[stored] = pair.delta.tensor_to_write()
            return Change(pair.old, pair.new, delta=stored)
        whole = {"old": old if keeps_old else None, "new": new}
        names = {side: f"{side}/{name}" for side, lazy in whole.items() if lazy is not None}
        self.to_write |= {names[side]: lazy.tensor_to_write() for side, lazy in whole.items() if lazy is not None}
        ends = [None if lazy is None else content_of(lazy) for lazy in (old, new)]
        return Change(ends[0], ends[1], old_whole=names.get("old"), new_whole=names.get("new"))


def _equal_to_changed(changes: dict[str, Change], olds: dict[str, Content]) -> tuple[str, ...]:
    """Return the names of tensors that stay what another was or becomes."""
    ends = {end for change in changes.values() for end in (change.old, change.new)}
    return tuple(name for name, content in olds.items() if content in ends and name not in changes)


def _compare(
    before: LazyTensors, after: LazyTensors, spool: Spool, progress: Progress | None
) -> dict[str, _Compared]:
    """Compare the tensors that keep their dtype and shape; equal recorded digests say that one did not change."""
    kept = [name for name in before if name in after and _fit(before[name], after[name])]
    pairs = {name: (before[name], after[name]) for name in kept}
    known = {name: pair for name, pair in pairs.items() if pair[0].digest and pair[0].digest == pair[1].digest}
    firsts: dict[object, str] = {}
    same = {name: firsts.setdefault(_place(name, pair), name) for name, pair in pairs.items() if name not in known}
    unread = sorted(firsts.values(), key=lambda name: -pairs[name][0].nbytes)
    meter = ProgressMeter(progress, sum(2 * pairs[name][0].nbytes for name in unread))
    n_threads = min(len(unread), N_THREADS)
    found = parallel_map(
        lambda name: _compare_one(name, *pairs[name], spool, meter), unread, n_threads=n_threads, meter=meter
    )
    read = dict(zip(unread, found, strict=True))
    contents = {name: content_of(old) for name, (old, _) in known.items()}
    return {
        name: _Compared(contents[name], contents[name]) if name in contents else read[same[name]] for name in pairs
    }


def _fit(old: LazyTensor, new: LazyTensor) -> bool:
    return (old.dtype, old.shape) == (new.dtype, new.shape)


def _place(name: str, pair: tuple[LazyTensor, LazyTensor]) -> object:
    """Return a value that two names of one tensor have in common, in both checkpoints."""
    if any(lazy.span is None for lazy in pair):
        return name
    return tuple((id(lazy.source), lazy.span) for lazy in pair)


def _compare_one(name: str, old: LazyTensor, new: LazyTensor, spool: Spool, meter: ProgressMeter) -> _Compared:
    delta = SpooledDelta(spool)
    hashers = new_hasher(), new_hasher()
    for blocks in zip(blocks_of(old), blocks_of(new), strict=True):
        for hasher, block in zip(hashers, blocks, strict=True):
            hasher.update(block.data.cast("B"))
            meter.add(block.nbytes)
        found = differences(*blocks)
        delta.add(b"" if found is None else encode(found))
    for lazy, hasher in zip((old, new), hashers, strict=True):
        if lazy.digest not in {None, hasher.digest()}:
            raise IntegrityError(
                f"tensor `{name}` is damaged",
                path=None if lazy.source is None else lazy.source.name,
                tensor=name,
                expected=f"BLAKE3 {(lazy.digest or b'').hex()[:16]}…",
                found=f"{hasher.hexdigest()[:16]}…",
            )
    contents = [Content(old.dtype, old.shape, hasher.hexdigest()) for hasher in hashers]
    return _Compared(contents[0], contents[1], delta)
