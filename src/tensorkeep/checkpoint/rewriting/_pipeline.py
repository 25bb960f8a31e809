"""What finished checkpoints go through before they are written anew: put together, chosen from, changed, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tensorkeep.checkpoint.verifying import verify
from tensorkeep.errors import RefusedError, SourceChangedError, TensorNotFoundError, as_transport_error
from tensorkeep.kinds import refuse
from tensorkeep.kinds.safetensors import Checkpoint
from tensorkeep.tensors import LazyTensor, LazyTensors, Renaming, Selector, TensorFile, TensorView, chosen_names
from tensorkeep.transport import is_remote

__all__ = [
    "Progress",
    "changed",
    "check_kept_digests",
    "digested",
    "identity_of",
    "refuse_replaced",
    "shifted",
    "taken",
    "together",
]

Progress = Callable[[int, int], None]
"""Takes the bytes done and the bytes in all."""


def identity_of(path: str) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written to; of a URL nothing, as its version is pinned anyway.

    Args:
        path: The file.

    Raises:
        TransportError: If it cannot be looked at.
    """
    if is_remote(path):
        return ()
    with as_transport_error("could not look at the checkpoint", path):
        status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def refuse_replaced(identities: dict[str, tuple[int, ...]]) -> None:
    """Refuse to put what was read in the place of a save that came since.

    Args:
        identities: Path to what `identity_of` gave when it was opened.

    Raises:
        SourceChangedError: If a file is another now.
        TransportError: If it cannot be looked at.
    """
    for path, identity in identities.items():
        if identity_of(path) != identity:
            raise SourceChangedError("the checkpoint was saved anew while it was read", path=path, hint="Start again")


def together(opened: Sequence[LazyTensors]) -> LazyTensors:
    """Return the tensors of all sources, each of which only one may have.

    Args:
        opened: The sources, one or more.

    Raises:
        RefusedError: If a tensor is in two of them.
    """
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
    """Choose what is wanted.

    Args:
        tensors: All there are.
        select: What to take; all if None.
        drop: What to leave out of these.
        others: Names of what stands beside the tensors, and is chosen like them.

    Returns:
        A view of the tensors, and which of the others are wanted.

    Raises:
        TensorNotFoundError: If no tensor is selected or left, or nothing is dropped.
    """
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
    """Return a view of the same tensors, in the same order, as they are to be.

    Args:
        tensors: What is wanted.
        rename: Old name to new, or a function of a name.
        strip_prefix: Taken from the names after that.
        cast: What floating-point tensors are converted to.

    Raises:
        TensorNotFoundError: If there is none of a name to rename or with the prefix.
        RefusedError: If two tensors would have one name.
        DtypeError: If there is no such dtype.
    """
    if rename is not None:
        tensors = tensors.rename(rename)
    if strip_prefix is not None:
        tensors = tensors.strip_prefix(strip_prefix)
    return tensors if cast is None else tensors.cast(cast)


def check_kept_digests(
    opened: Sequence[tuple[str, Checkpoint | TensorFile]], variant: str | None, names: set[str], progress: Progress
) -> None:
    """Hold tensors against the digests of their files, where these have any.

    Args:
        opened: Path that was given, and what was opened there.
        variant: Such as `"fp16"`, where that path is a directory.
        names: Tensors whose digests cannot be kept, since they are cast or cut.
        progress: Called with the bytes checked so far and those in all; the latter are those of `digested`.

    Raises:
        IntegrityError: If bytes are not those that were saved.
        TransportError: If they cannot be read.
    """
    done = 0
    for path, source in opened:
        stored = digested(source, names)
        if stored:
            found = verify(path, names=stored, variant=variant, progress=shifted(progress, done, 0))
            refuse(found.findings, path)
            done += found.nbytes_checked


def digested(source: Checkpoint | TensorFile, names: set[str]) -> dict[str, LazyTensor]:
    """Return what the files store of some tensors, whole or in pieces, where they have digests.

    Args:
        source: A checkpoint.
        names: Its tensors.
    """
    splits = source.index.splits if isinstance(source, Checkpoint) else {}
    owners = {source.aliases[name].of if name in source.aliases else name for name in names}
    stored = {part for name in owners for part in splits.get(name, (name,))}
    sealed = (shard for shard in source.shards.values() if shard.seal is not None)
    return {name: shard.stored(name) for shard in sealed for name in shard.entries if name in stored}


def shifted(progress: Progress, before: int, total: int) -> Progress:
    """Return what reports the bytes of one part of the work among those of all.

    Args:
        progress: What is to be called.
        before: Bytes that were done before.
        total: Bytes in all.
    """
    return lambda done, _: progress(before + done, total)
