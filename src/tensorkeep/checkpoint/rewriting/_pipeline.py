"""What existing checkpoints go through before they are written again.

In this order: `concatenate`, `select_and_drop`, `transform`; then `check_replaced` for the tensors whose bytes
change, so that damage never gets a new digest; then the save, which `refuse_replaced` may stop before its commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensorkeep.checkpoint._stored_numbers import refuse_quantized
from tensorkeep.checkpoint.rewriting._named_texts import join_metadata, with_named_texts
from tensorkeep.checkpoint.verifying import find_damage
from tensorkeep.digests import BLAKE3
from tensorkeep.errors import (
    RefusedError,
    SourceChangedError,
    TensorNotFoundError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.kinds import Check, Opened, refuse
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors import LazyTensors, Renaming, Selector, TensorView, chosen_names
from tensorkeep.transport import is_remote, was_proven_here

if TYPE_CHECKING:
    from concurrent.futures import Executor


_N_USUAL: Final = 4
"""Members of an identity without the time of the last change, which a new link changes too."""


class RewriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which tensors to take, and what becomes of them: parameters of `reshard`, `join` and `convert`."""

    select: Selector | Iterable[Selector] | None = None
    drop: Selector | Iterable[Selector] | None = None
    rename: Renaming | None = None
    strip_prefix: str | None = None
    change: Callable[[LazyTensors], LazyTensors] | None = None
    dequantize: Any = None
    cast: Any = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None and self.cast is None:
            raise UnsupportedError("a seed (--stochastic) is only for a cast", expected="cast= (--cast) too")

    @property
    def takes_all(self) -> bool:
        """Whether no tensor is left out by its name."""
        return self.select is None and self.drop is None


def _identity_of(path: str) -> tuple[int, ...]:
    """Return a value that changes when a local file is replaced or written; a URL has a pinned version instead."""
    if is_remote(path):
        return ()
    with as_transport_error("could not read the checkpoint", path):
        status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def identities_of(sources: Iterable[Opened]) -> dict[str, tuple[int, ...]]:
    """Return the path of each file that says what the sources hold, with its identity.

    Files that a policy demands to be proven are among them, and their identity has the one time that no program sets.
    """
    identities: dict[str, tuple[int, ...]] = {}
    for source in sources:
        has_proof = source.proof is not None
        proven = {each.name for each in source.sources.values() if has_proof or was_proven_here(each)}
        for path in (source.path, *source.state_files, *proven):
            if is_remote(path) or os.path.isfile(path):
                identity = _identity_of(path)
                identities[path] = identity if has_proof or path in proven else identity[:_N_USUAL]
    return identities


def refuse_replaced(identities: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse to commit if a source was saved again after it was read."""
    for path, identity in identities.items():
        if _identity_of(path)[: len(identity)] != identity:
            raise SourceChangedError(
                "the checkpoint was saved again while it was read", path=path, hint="Start again"
            )


def concatenate(opened: Sequence[LazyTensors]) -> LazyTensors:
    """Return the tensors of all sources; no two may have the same name."""
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
                    hint="Write one of them again without it (drop) or under other names (rename), and start again",
                )
    return TensorView(
        {name: source[name] for name, source in owners.items()},
        path=", ".join(source.path for source in opened),
        metadata=join_metadata(opened) if any(source.has_metadata for source in opened) else None,
    )


def select_and_drop(
    tensors: LazyTensors, options: RewriteOptions, others: Collection[str] = ()
) -> tuple[LazyTensors, set[str]]:
    """Return the tensors that the options take, and which names of other values."""
    wanted = set(others)
    if options.select is not None:
        wanted = set(chosen_names(others, _selectors(options.select)))
        tensors = tensors.select(*_selectors(options.select))
    if options.drop is None:
        return tensors, wanted
    kept = tensors.drop(*_selectors(options.drop))
    dropped = wanted & set(chosen_names(others, _selectors(options.drop)))
    if not kept or (len(kept) == len(tensors) and not dropped):
        raise TensorNotFoundError(
            "nothing is left" if not kept else "there is nothing to drop",
            path=tensors.path,
            found="every name is matched" if not kept else "no name is matched",
        )
    return kept, wanted - dropped


def _selectors(given: Selector | Iterable[Selector]) -> list[Selector]:
    return [given] if isinstance(given, str) or callable(given) else list(given)


def transform(tensors: LazyTensors, options: RewriteOptions) -> LazyTensors:
    """Return a view of the tensors renamed, changed, dequantized and cast; in the same order, if none is changed."""
    wanted = tensors
    if options.rename is not None:
        tensors = tensors.rename(options.rename)
    if options.strip_prefix is not None:
        tensors = tensors.strip_prefix(options.strip_prefix)
    tensors = with_named_texts(tensors, wanted)
    if options.change is not None:
        tensors = options.change(tensors)
    if options.dequantize is not None:
        tensors = tensors.dequantize(options.dequantize)
    if options.cast is None:
        return tensors
    changed = tensors.cast(options.cast, seed=options.seed)
    refuse_quantized(tensors, [name for name, lazy in tensors.items() if lazy.dtype != changed[name].dtype])
    return changed


def digests_to_replace(source: Opened, names: Collection[str]) -> list[Check]:
    """Return the digests of some tensors of a source, which new files cannot keep."""
    own = [name for name in names if name in source]
    return [check for check in source.checks(own).checks if check.algorithm is BLAKE3]


def check_replaced(
    checks: Sequence[tuple[str, Sequence[Check]]], meter: ProgressMeter, executor: Executor | None = None
) -> None:
    """Refuse damage that would get a new digest; takes what each path has to check."""
    for path, of_path in checks:
        refuse(find_damage(of_path, meter, executor=executor), path)


def subprogress(progress: Progress, before: int, total: int) -> Progress:
    """Return a callback for one part of the work, which reports to the callback of all of it."""
    return lambda done, _: progress(before + done, total)
