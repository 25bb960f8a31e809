"""What a conversion is held against: the sums of its sources before anything is final, and what was written after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tensorkeep.checkpoint import Progress, check_kept_digests, digested, verify
from tensorkeep.conversion._sources import Sources
from tensorkeep.errors import IntegrityError
from tensorkeep.kinds import refuse
from tensorkeep.kinds.storage_crc32 import sum_of
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensors


class Checks:
    """The checks of one conversion, which count their bytes and those that are written together.

    Attributes:
        n_summed: Storages that have a CRC-32 to be held against.
    """

    def __init__(
        self,
        sources: Sources,
        wanted: LazyTensors,
        new: LazyTensors,
        n_written: int,
        progress: Progress | None,
        *,
        is_wanted: bool,
    ) -> None:
        self._checkpoints = sources.checkpoints
        self._remade = {old for old, lazy in zip(wanted, new.values(), strict=True) if lazy.digest is None}
        self._sums = sources.sums(wanted) if is_wanted else []
        self._is_wanted = is_wanted
        self.n_summed = len(self._sums)
        n_digested = sum(
            lazy.nbytes for _, source in self._checkpoints for lazy in digested(source, self._remade).values()
        )
        n_bytes_summed = sum(len(summed.span) for summed in self._sums)
        self._meter = ProgressMeter(progress, n_digested + n_bytes_summed + n_written * (2 if is_wanted else 1))

    def part(self) -> Progress:
        """Return what takes the bytes done so far of one part of the work."""
        count = self._meter.counting()
        return lambda done, _: count(done)

    def check_digests(self, variant: str | None) -> None:
        """Hold sources against their digests, where these cannot be kept: no damage is made to look whole."""
        check_kept_digests(self._checkpoints, variant, self._remade, self.part())

    def _check_sums(self) -> None:
        for summed in self._sums:
            found = sum_of(summed, self._meter)
            if found != summed.crc:
                raise IntegrityError(
                    f"the bytes of tensor `{summed.tensor}` are not those that were saved",
                    path=summed.source.name,
                    tensor=summed.tensor,
                    expected=f"CRC-32 {summed.crc:#010x}",
                    found=f"{found:#010x}",
                    hint="The file is damaged: get it again. check=False (--no-check) converts it as it is",
                )

    @contextmanager
    def summing(self) -> Iterator[Callable[[], None]]:
        """Hold sources against their CRC-32 while the block writes; what is given waits for it, and raises."""
        from concurrent.futures import ThreadPoolExecutor  # 18 ms, which opening need not pay

        with ThreadPoolExecutor(1, thread_name_prefix="tensorkeep-sums") as thread:
            future = thread.submit(self._check_sums)
            try:
                yield future.result
            except BaseException:
                self._meter.stop()
                raise

    def read_back(self, staged: Mapping[str, str]) -> None:
        """Hold files that were written against the digests in their headers, which were made of the sources."""
        for name, path in staged.items() if self._is_wanted else ():
            refuse(verify(path, progress=self.part()).findings, name)
