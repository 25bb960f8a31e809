"""What finished checkpoints go through before they are written anew: put together, chosen from, changed, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tensorkeep.checkpoint.verifying import verify
from tensorkeep.errors import RefusedError, SourceChangedError, TensorNotFoundError, as_transport_error
from tensorkeep.kinds import refuse
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile
from tensorkeep.tensors import LazyTensor, LazyTensors, Renaming, Selector, TensorView, chosen_names
from tensorkeep.transport import is_remote

Progress = Callable[[int, int], None]
"""Takes the bytes done and the bytes in all."""


def identity_of(path: str) -> tuple[int, ...]:
    """Return what changes when a local file is replaced or written; a URL has a pinned version instead."""
    if is_remote(path):
        return ()
    with as_transport_error("could not look at the checkpoint", path):
        status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def refuse_replaced(identities: dict[str, tuple[int, ...]]) -> None:
    """Refuse to put what was read in the place of a save that came since."""
    for path, identity in identities.items():
        if identity_of(path) != identity:
            raise SourceChangedError("the checkpoint was saved anew while it was read", path=path, hint="Start again")


def together(opened: Sequence[LazyTensors]) -> LazyTensors:
    """Return the tensors of all sources, each of which only one may have."""
    if len(opened) == 1:
        return opened[0]
    owners: dict[str, LazyTensors] = {}
    for source in opened:
        for name in source:
            other = owners.setdefault(name, source)
            if other is not source:
                raise RefusedError(
                    f"tensor `{name}` is in two of the checkpoints",
                    tensor=name,
                    found=f"{other.path} and {source.path}",
                    hint="Write one of them anew without it (drop) or under other names (rename), and start again",
                )
    metadata = {key: text for source in reversed(opened) for key, text in source.metadata.items()}
    return TensorView(
        {name: source[name] for name, source in owners.items()},
        path=", ".join(source.path for source in opened),
        metadata=metadata if any(source.has_metadata for source in opened) else None,
    )


def taken(
    tensors: LazyTensors,
    select: Selector | Iterable[Selector] | None,
    drop: Selector | Iterable[Selector] | None,
    others: Collection[str] = (),
) -> tuple[LazyTensors, set[str]]:
    """Choose what is wanted."""
    wanted = set(others)
    if select is not None:
        wanted = set(chosen_names(others, _selectors(select)))
        tensors = tensors.select(*_selectors(select))
    if drop is None:
        return tensors, wanted
    kept = tensors.drop(*_selectors(drop))
    dropped = wanted & set(chosen_names(others, _selectors(drop)))
    if not kept or (len(kept) == len(tensors) and not dropped):
        raise TensorNotFoundError(
            "nothing is left" if not kept else "there is nothing to drop",
            path=tensors.path,
            found="every name is matched" if not kept else "no name is matched",
        )
    return kept, wanted - dropped


def _selectors(given: Selector | Iterable[Selector]) -> list[Selector]:
    return [given] if isinstance(given, str) or callable(given) else list(given)


def changed(tensors: LazyTensors, rename: Renaming | None, strip_prefix: str | None, cast: Any) -> LazyTensors:
    """Return a view of the same tensors, in the same order, as they are to be."""
    if rename is not None:
        tensors = tensors.rename(rename)
    if strip_prefix is not None:
        tensors = tensors.strip_prefix(strip_prefix)
    return tensors if cast is None else tensors.cast(cast)


def check_kept_digests(
    opened: Sequence[tuple[str, Checkpoint | TensorFile]], variant: str | None, names: set[str], progress: Progress
) -> None:
    """Hold tensors against the digests of their files, where these have any."""
    done = 0
    for path, source in opened:
        stored = digested(source, names)
        if stored:
            found = verify(path, names=stored, variant=variant, progress=shifted(progress, done, 0))
            refuse(found.findings, path)
            done += found.nbytes_checked


def digested(source: Checkpoint | TensorFile, names: set[str]) -> dict[str, LazyTensor]:
    """Return what the files store of some tensors, whole or in pieces, where they have digests."""
    splits = source.index.splits if isinstance(source, Checkpoint) else {}
    owners = {source.aliases[name].of if name in source.aliases else name for name in names}
    stored = {part for name in owners for part in splits.get(name, (name,))}
    sealed = (shard for shard in source.shards.values() if shard.seal is not None)
    return {name: shard.stored(name) for shard in sealed for name in shard.entries if name in stored}


def shifted(progress: Progress, before: int, total: int) -> Progress:
    """Return what reports the bytes of one part of the work among those of all."""
    return lambda done, _: progress(before + done, total)
