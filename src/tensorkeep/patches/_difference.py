"""What differs between the tensors of two checkpoints, compared block by block."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorkeep.arrays import StreamedTensor, TensorToWrite
from tensorkeep.deltas.encoding import blocks_of, differences, encode
from tensorkeep.deltas.reading import N_THREADS, Change, Content, digest_of_contents, hash_bytes
from tensorkeep.digests import new_hasher
from tensorkeep.errors import IntegrityError
from tensorkeep.parallel import Progress, ProgressMeter, parallel_map
from tensorkeep.patches._spool import Spool, SpooledDelta
from tensorkeep.tensors import StoredTensor
from tensorkeep.tensors.readers import keep_freed_memory


class Difference(msgspec.Struct, frozen=True, eq=False):
    """How tensors differ, as a patch says it.

    Attributes:
        old: BLAKE3 of what the old tensors are, as hexadecimal digits; see `digest_of_contents`.
        new: The same of the new ones.
        changes: Name to change, for tensors that change.
        equal: Names of tensors that do not change, and equal one that does, as it was or becomes.
        to_write: The tensors of the patch.
    """

    old: str
    new: str
    changes: dict[str, Change]
    equal: tuple[str, ...]
    to_write: Mapping[str, TensorToWrite]


def difference(
    before: Mapping[str, TensorToWrite],
    after: Mapping[str, TensorToWrite],
    spool: Spool,
    *,
    keeps_old: bool = False,
    progress: Progress | None = None,
) -> Difference:
    """Compare tensors; each is read once, unless both have equal digests."""
    keep_freed_memory()
    compared = _compare(before, after, spool, progress)
    olds = {name: compared[name].old if name in compared else _content_of(before[name]) for name in before}
    news = {name: compared[name].new if name in compared else _content_of(after[name]) for name in after}
    parts = _Parts()
    for name in olds | news:
        if olds.get(name) == news.get(name):
            continue
        pair = compared.get(name)
        if pair is not None and pair.delta is not None:
            parts.add_delta(name, pair.old, pair.new, pair.delta)
        else:
            kept = before.get(name) if keeps_old else None
            parts.add_whole(name, olds.get(name), news.get(name), kept, after.get(name))
    changes = parts.changes
    ends = {end for change in changes.values() for end in (change.old, change.new)}
    equal = tuple(name for name, content in olds.items() if content in ends and name not in changes)
    return Difference(digest_of_contents(olds), digest_of_contents(news), changes, equal, parts.to_write)


class _Compared(msgspec.Struct, frozen=True, eq=False):
    """A tensor of both checkpoints: what it is in each, and how it differs; no delta if it was not read."""

    old: Content
    new: Content
    delta: SpooledDelta | None = None


class _Parts:
    """The tensors of a patch; equal differences, of tensors with several names, are one."""

    def __init__(self) -> None:
        self.changes: dict[str, Change] = {}
        self.to_write: dict[str, TensorToWrite] = {}
        self._names: dict[tuple[Content, Content], str] = {}

    def add_delta(self, name: str, old: Content, new: Content, delta: SpooledDelta) -> None:
        """Take the differences of a tensor."""
        stored = self._names.setdefault((old, new), f"delta/{name}")
        if stored not in self.to_write:
            self.to_write[stored] = delta.tensor_to_write()
        self.changes[name] = Change(old, new, delta=stored)

    def add_whole(
        self,
        name: str,
        old: Content | None,
        new: Content | None,
        kept: TensorToWrite | None,
        made: TensorToWrite | None,
    ) -> None:
        """Take a tensor that is added, removed or replaced."""
        given = {f"{side}/{name}": tensor for side, tensor in (("old", kept), ("new", made)) if tensor is not None}
        self.to_write |= given
        self.changes[name] = Change(
            old,
            new,
            old_whole=None if kept is None else f"old/{name}",
            new_whole=None if made is None else f"new/{name}",
        )


def _compare(
    before: Mapping[str, TensorToWrite],
    after: Mapping[str, TensorToWrite],
    spool: Spool,
    progress: Progress | None,
) -> dict[str, _Compared]:
    """Compare the tensors that keep their dtype and shape; equal recorded digests say that one did not change."""
    pairs = {name: (old, after[name]) for name, old in before.items() if name in after and _fit(old, after[name])}
    known = {name: pair for name, pair in pairs.items() if _digest(pair[0]) and _digest(pair[0]) == _digest(pair[1])}
    firsts: dict[object, str] = {}
    same = {name: firsts.setdefault(_place(name, pair), name) for name, pair in pairs.items() if name not in known}
    unread = sorted(firsts.values(), key=lambda name: -pairs[name][0].nbytes)
    meter = ProgressMeter(progress, sum(2 * pairs[name][0].nbytes for name in unread))
    n_threads = min(len(unread), N_THREADS)
    found = parallel_map(
        lambda name: _compare_one(name, *pairs[name], spool, meter), unread, n_threads=n_threads, meter=meter
    )
    read = dict(zip(unread, found, strict=True))
    contents = {name: _content_of(old) for name, (old, _) in known.items()}
    return {
        name: _Compared(contents[name], contents[name]) if name in contents else read[same[name]] for name in pairs
    }


def _fit(old: TensorToWrite, new: TensorToWrite) -> bool:
    return (old.dtype, old.shape) == (new.dtype, new.shape)


def _digest(tensor: TensorToWrite) -> bytes | None:
    """Return the digest that a tensor is known to have."""
    return tensor.digest if isinstance(tensor, StoredTensor | StreamedTensor) else None


def _content_of(tensor: TensorToWrite) -> Content:
    return Content(tensor.dtype.name, tensor.shape, (_digest(tensor) or hash_bytes(tensor)).hex())


def _place(name: str, pair: tuple[TensorToWrite, TensorToWrite]) -> object:
    """Return a value that two names of one tensor have in common, in both checkpoints."""
    places = [(tensor.extent(), tensor.dtype.name, tensor.shape) for tensor in pair]
    return name if any(extent is None for extent, *_ in places) else tuple(places)


def _compare_one(name: str, old: TensorToWrite, new: TensorToWrite, spool: Spool, meter: ProgressMeter) -> _Compared:
    delta = SpooledDelta(spool)
    hashers = new_hasher(), new_hasher()
    for blocks in zip(blocks_of(old), blocks_of(new), strict=True):
        for hasher, block in zip(hashers, blocks, strict=True):
            hasher.update(block.data.cast("B"))
            meter.add(block.nbytes)
        found = differences(*blocks)
        delta.add(b"" if found is None else encode(found))
    for tensor, hasher in zip((old, new), hashers, strict=True):
        if _digest(tensor) not in {None, hasher.digest()}:
            raise IntegrityError(
                f"tensor `{name}` is damaged",
                path=tensor.source.name if isinstance(tensor, StoredTensor) else None,
                tensor=name,
                expected=f"BLAKE3 {(_digest(tensor) or b'').hex()[:16]}…",
                found=f"{hasher.hexdigest()[:16]}…",
            )
    old_content, new_content = (Content(old.dtype.name, old.shape, hasher.hexdigest()) for hasher in hashers)
    return _Compared(old_content, new_content, delta)
