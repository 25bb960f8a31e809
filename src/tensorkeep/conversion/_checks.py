"""What a conversion is held against: the sums of its sources before anything is final, and what was written after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tensorkeep.checkpoint import refuse, verify
from tensorkeep.checkpoint.rewriting import Progress, check_kept_digests, digested
from tensorkeep.checkpoint.workers import Meter
from tensorkeep.conversion._archive_sums import check_sums
from tensorkeep.conversion._sources import Sources
from tensorkeep.tensors import LazyTensors

__all__ = ["Checks"]


class Checks:
    """The checks of one conversion, which count their bytes and those that are written together.

    Args:
        sources: What is converted.
        wanted: The tensors that are wanted.
        stored: Those that are to be written, under the names that they will have.
        progress: Called with the bytes done so far and those in all.
        is_wanted: Whether sums are checked and files read back; digests that cannot be kept always are.

    Attributes:
        n_summed: Storages that have a CRC-32 to be held against.
    """

    def __init__(
        self,
        sources: Sources,
        wanted: LazyTensors,
        stored: LazyTensors,
        progress: Progress | None,
        *,
        is_wanted: bool,
    ) -> None:
        """Count the bytes; see the class."""
        self._checkpoints = sources.checkpoints
        self._remade = {old for old, lazy in wanted.items() if lazy.digest is None}
        self._sums = sources.sums(wanted) if is_wanted else []
        self._is_wanted = is_wanted
        self.n_summed = len(self._sums)
        n_digested = sum(
            lazy.nbytes for _, source in self._checkpoints for lazy in digested(source, self._remade).values()
        )
        n_summed_nbytes = sum(len(summed.span) for summed in self._sums)
        n_written = stored.nbytes * (2 if is_wanted else 1)
        self._meter = Meter(progress, n_digested + n_summed_nbytes + n_written)

    def part(self) -> Progress:
        """Return what takes the bytes done so far of one part of the work."""
        count = self._meter.counting()
        return lambda done, _: count(done)
