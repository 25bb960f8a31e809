"""The vocabulary of the benchmarks: a case is a declaration, the harness does the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["AtLeast", "AtMostOver", "Case", "Contender", "Place"]


class Place(msgspec.Struct, frozen=True):
    """Where the files of a run go, and how large they are.

    Attributes:
        folder: A directory on a disk.
        tmpfs: A directory in memory.
        quick: Whether sizes are small, to see that everything runs.
    """

    folder: Path
    tmpfs: Path
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """Return the size that fits the run."""
        return quick if self.quick else full


class Contender(msgspec.Struct, frozen=True):
    """One way of doing what a case asks for.

    Attributes:
        name: What the report calls it.
        run: Does it. Timed; what it returns is dropped when the clock has stopped.
    """

    name: str
    run: Callable[[Any], Any]


class AtLeast(msgspec.Struct, frozen=True):
    """A target: the peer's time over ours, at least."""

    ratio: float


class AtMostOver(msgspec.Struct, frozen=True):
    """A target: our time less the peer's, in seconds, at most."""

    seconds: float


def _nothing(_: Any) -> None:
    pass


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Attributes:
        name: `group/case`; the group is the module that holds it.
        title: What is done to what, for the report.
        prepare: Makes the files and values that the contenders work on, and returns what each of them is given.
            Called in every worker process, so it leaves files that are already there.
        ours: tensorkeep's way.
        peers: Other ways; the target is about the first.
        limits: What the machine can do at best; the report's first table shows the first.
        target: How much better than the first peer this has to be, or None.
        max_extra_nbytes: Resident bytes at the peak, over those before, that it may take; None for any number.
        before: Done before each contender of each round, with the clock stopped.
        after: The same, afterwards.
        rounds: How often each contender runs.
        has_memory: Whether the memory that a contender takes says anything.
        remark: What a reader should know about this case.
    """

    name: str
    title: str
    prepare: Callable[[Place], Any]
    ours: Contender
    peers: tuple[Contender, ...]
    limits: tuple[Contender, ...] = ()
    target: AtLeast | AtMostOver | None = None
    max_extra_nbytes: int | None = None
    before: Callable[[Any], None] = _nothing
    after: Callable[[Any], None] = _nothing
    rounds: int = 15
    has_memory: bool = True
    remark: str = ""

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All that are timed, ours first."""
        return (self.ours, *self.peers, *self.limits)

    @property
    def group(self) -> str:
        """The module that holds the case."""
        return self.name.partition("/")[0]
