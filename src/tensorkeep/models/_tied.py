"""Weights that a model ties and a checkpoint does not: only one of the saved tensors can go there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tensorkeep.checkpoint import have_equal_bytes
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.tensors import LazyTensor


class TieConflict(NamedTuple):
    """A tensor of a checkpoint in whose place another one goes into the model, though it has other numbers.

    Attributes:
        name: Its name in the model.
        taken: The name, tied to it there, of the one that is loaded.
    """

    name: str
    taken: str


def find_outdone(
    tied: Iterable[tuple[tuple[str, ...], str | None]], tensors: Mapping[str, LazyTensor]
) -> Iterator[TieConflict]:
    """Find tensors that would be lost. Only those of tied names are read, and only where digests say nothing."""
    for names, taken in tied:
        if taken is not None:
            others = [name for name in names if name != taken and name in tensors]
            yield from (TieConflict(name, taken) for name in others if not _are_equal(tensors[name], tensors[taken]))


def outdone_error(outdone: list[TieConflict], model: str, path: str) -> StateDictMismatchError:
    """Say which tensors would be lost."""
    name, taken = outdone[0]
    more = f" (and {len(outdone) - 1:,} more like these)" if outdone[1:] else ""
    return StateDictMismatchError(
        f"the checkpoint does not fit {model}, which ties `{name:.200}` to `{taken:.200}`{more}",
        path=path,
        expected="equal tensors, or one of them",
        found="two that differ",
        hint="Untie them in the model; or leave out the one that is not wanted, or let strict=False take"
        f" `{taken:.200}`",
        unexpected=[each.name for each in outdone],
    )


def _are_equal(a: LazyTensor, b: LazyTensor) -> bool:
    if (a.dtype, a.shape, a.nbytes) != (b.dtype, b.shape, b.nbytes):
        return False
    if a.span is not None and a.source is b.source and a.span == b.span:
        return True
    if a.digest is not None and b.digest is not None:
        return a.digest == b.digest
    return have_equal_bytes(a, b, lambda _: None)
