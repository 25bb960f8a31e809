"""Patches that follow each other, combined into one: differences are added, and no checkpoint is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
import numpy as np

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint import find_damage
from tensorkeep.deltas import through
from tensorkeep.deltas.encoding import BLOCK_LENGTH, Delta, differences, encode, word_of
from tensorkeep.deltas.reading import N_THREADS, Change, Content, Description, End, Patch
from tensorkeep.dtypes import BY_NAME
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.kinds import refuse
from tensorkeep.kinds.given import as_opened
from tensorkeep.parallel import Progress, ProgressMeter, parallel_map
from tensorkeep.patches._spool import Spool, SpooledDelta, spool_directory
from tensorkeep.patches._summary import Summary, refuse_target, write_patch
from tensorkeep.patches.opening import Checkpoint, Opening, encryption_of
from tensorkeep.tensors import LazyTensor, LazyTensors


def chain(
    patches: Checkpoint | Sequence[Checkpoint],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> Summary:
    """Combine patches that follow each other into one, without the checkpoints between which they lead.

        tensorkeep.patches.chain(["110.patch.safetensors", "120.patch.safetensors"], "110-120.patch.safetensors")

    Args:
        patches: Patches in their order, or one: paths, URLs, or open files.
        path: The file to write, or a URL. It appears complete or not at all.
        overwrite: Whether to replace a file at `path`.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes of differences added so far and the total, by one thread at a time.
        key: The key of encrypted patches; see `open`.
        encrypt: The key to encrypt the new patch with, or an `Encryption`. None encrypts it like the first of the
            patches that is encrypted.

    Returns:
        What was written.

    Raises:
        DestinationExistsError: If there is something at `path`, and `overwrite` is false.
        EncryptedError: If a patch is encrypted, and the key is missing or another one.
        IntegrityError: If a patch does not follow the one before it, or is damaged.
        FormatError: If a patch is malformed, or contradicts itself.
        UnsupportedError: If there are no patches, or one has differences of an unknown dtype.
        TransportError: If something cannot be read or written.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.
    """
    refuse_target(path, overwrite=overwrite)
    with ExitStack() as stack:
        given = [patches] if isinstance(patches, str | os.PathLike | LazyTensors) else patches
        steps = Opening(stack, key).patches(given)
        if not steps:
            raise UnsupportedError("there is nothing to combine", expected="at least one patch")
        _refuse_damage(steps)
        combined: dict[str, _Combined] = {}
        for before, patch in zip([None, *steps], steps, strict=False):
            _require_follows(before, patch)
            for name, change in patch.description.tensors.items():
                combined[name] = _after(combined.get(name), patch, name, change)
        encryption = encryption_of(encrypt, *(step.tensors for step in steps))
        spool = stack.enter_context(Spool(spool_directory(path), is_encrypted=encryption is not None))
        changes, to_write = _changes(
            {name: one for name, one in combined.items() if one.old != one.new}, spool, progress
        )
        return write_patch(path, _between(steps, changes), to_write, durable=durable, encryption=encryption)


class _Combined(msgspec.Struct, frozen=True, eq=False):
    """What becomes of a tensor through all patches so far: differences to add, or the tensors themselves."""

    old: Content | None
    new: Content | None
    deltas: tuple[Delta, ...] = ()
    old_whole: LazyTensor | None = None
    new_whole: LazyTensor | None = None

    def whole(self, to_write: dict[str, TensorToWrite]) -> Change:
        """Describe a change without differences, and take the tensors that it needs."""
        wholes = {"old": self.old_whole, "new": self.new_whole}
        given = {side: (f"{side}/{lazy.name}", lazy) for side, lazy in wholes.items() if lazy is not None}
        to_write |= {stored: lazy.tensor_to_write() for stored, lazy in given.values()}
        names = {f"{side}_whole": stored for side, (stored, _) in given.items()}
        return Change(self.old, self.new, **names)


def _changes(
    combined: dict[str, _Combined], spool: Spool, progress: Progress | None
) -> tuple[dict[str, Change], dict[str, TensorToWrite]]:
    """Return all changes and the tensors that they need; differences of tensors with several names are one."""
    ends = {name: (one.old, one.new) for name, one in combined.items() if one.deltas}
    firsts = {both: name for name, both in reversed(ends.items())}
    names = list(firsts.values())
    n_threads = min(len(names), N_THREADS)
    meter = ProgressMeter(progress, sum(delta.stored.nbytes for name in names for delta in combined[name].deltas))
    sums = parallel_map(
        lambda name: _sum(combined[name].deltas, spool, meter), names, n_threads=n_threads, meter=meter
    )
    to_write: dict[str, TensorToWrite] = {
        f"delta/{name}": delta.tensor_to_write() for name, delta in zip(names, sums, strict=True)
    }
    changes = {}
    for name, one in combined.items():
        if name in ends:
            changes[name] = Change(one.old, one.new, delta=f"delta/{firsts[ends[name]]}")
        else:
            changes[name] = one.whole(to_write)
    return changes, to_write


def _refuse_damage(steps: Sequence[Patch]) -> None:
    """Refuse damage now: sums of damaged differences would get digests of their own, and look whole."""
    for patch in steps:
        checks = as_opened(patch.tensors).checks().checks
        meter = ProgressMeter(None, sum(len(check.span) for check in checks))
        refuse(find_damage(checks, meter), patch.path)


def _require_follows(before: Patch | None, patch: Patch) -> None:
    if before is not None and before.description.new.digest != patch.description.old.digest:
        raise IntegrityError(
            "a patch does not follow the one before it",
            path=patch.path,
            expected=f"a patch for {before.description.new.digest[:16]}…, which {before.path} makes",
            found=f"one for {patch.description.old.digest[:16]}…",
        )


def _after(before: _Combined | None, patch: Patch, name: str, change: Change) -> _Combined:
    """Return what becomes of a tensor, after one more patch."""
    if before is not None and before.new != change.old:
        raise patch.fault(name, "it is not what the patch before it makes")
    start = _Combined(change.old, change.old) if before is None else before
    if change.delta is not None and change.old is not None and change.new is not None:
        dtype = BY_NAME.get(change.old.dtype)
        if dtype is None:
            raise UnsupportedError(
                f"differences of tensor `{name}` cannot be added",
                path=patch.path,
                tensor=name,
                found=change.old.dtype,
            )
        word = word_of(dtype)
        n_words = dtype.nbytes(int(np.prod(change.old.shape, dtype=object))) // word.itemsize
        delta = patch.delta_of(name, change, n_words, word)
        if start.new_whole is not None:
            whole = through(start.new_whole, (delta,), change.new.digest)
            return msgspec.structs.replace(start, new=change.new, new_whole=whole)
        return msgspec.structs.replace(start, new=change.new, deltas=(*start.deltas, delta))
    old_whole = start.old_whole
    if start.old is not None and change.old_whole is not None and (before is None or start.deltas):
        back = tuple(delta.reversed for delta in reversed(start.deltas))
        old_whole = through(patch.old_whole_of(name, change), back, start.old.digest)
    new_whole = None if change.new is None else through(patch.whole_of(name, change), (), change.new.digest)
    return _Combined(start.old, change.new, (), old_whole, new_whole)


def _sum(deltas: tuple[Delta, ...], spool: Spool, meter: ProgressMeter) -> SpooledDelta:
    """Add differences, block by block."""
    total = SpooledDelta(spool)
    first = deltas[0]
    for number in range(first.n_blocks):
        if not any(delta.has_block(number) for delta in deltas):
            total.add(b"")
            continue
        n_words = min(BLOCK_LENGTH, first.n_words - number * BLOCK_LENGTH)
        zeros, words = (np.zeros(n_words, first.word) for _ in range(2))
        for delta in deltas:
            delta.apply(words, number * BLOCK_LENGTH)
        found = differences(zeros, words)
        total.add(b"" if found is None else encode(found))
    meter.add(sum(delta.stored.nbytes for delta in deltas))
    return total


def _between(steps: list[Patch], changes: dict[str, Change]) -> Description:
    """Describe the way from the checkpoint before all patches to the one after them."""
    with_texts = [step.description for step in steps if step.description.old.texts]
    old = with_texts[0].old.texts if with_texts else None
    new = with_texts[-1].new.texts if with_texts else None
    is_same = old == new
    return Description(
        old=End(steps[0].description.old.digest, None if is_same else old),
        new=End(steps[-1].description.new.digest, None if is_same else new),
        tensors=changes,
        equal=tuple({name: None for step in steps for name in step.description.equal if name not in changes}),
    )
