"""The checks of a conversion: sources against their checksums, and what was written against the sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tensorkeep.checkpoint import Progress, check_replaced, digests_to_replace, find_damage, verify
from tensorkeep.conversion._sources import Sources
from tensorkeep.digests import BLAKE3
from tensorkeep.errors import IntegrityError
from tensorkeep.kinds import Check, refuse
from tensorkeep.parallel import ProgressMeter, Workers
from tensorkeep.tensors import LazyTensors
from tensorkeep.transport import split

if TYPE_CHECKING:
    from concurrent.futures import Executor


class SourceChecks:
    """The checks of one conversion; their progress includes the bytes written.

    Attributes:
        n_summed: Number of checksums in the sources that are not digests.
        is_read_back: Whether the written files were compared.
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
        executor: Executor | None = None,
    ) -> None:
        made = (old for old, lazy in zip(wanted, new.values(), strict=True) if lazy.digest is None)
        remade = list(sources.stored_names(made))
        self._digests = [(path, digests_to_replace(source, remade)) for path, source in sources.named]
        self._sums: list[Check] = []
        self._is_wanted = is_wanted
        self._executor = executor
        for source in sources.opened if is_wanted else ():
            found = source.checks([name for name in remade if name in source]).checks
            self._sums += [check for check in found if check.algorithm is not BLAKE3]
        self.n_summed = len(self._sums)
        self.is_read_back = False
        checks = [*self._sums, *(check for _, of_path in self._digests for check in of_path)]
        n_checked = sum(len(check.span) for check in checks)
        self._meter = ProgressMeter(progress, n_checked + n_written * (2 if is_wanted else 1))

    def part(self) -> Progress:
        """Return a progress callback for one part of the work."""
        count = self._meter.counting()
        return lambda done, _: count(done)

    def check_digests(self) -> None:
        """Check sources against digests that the conversion replaces, so that damage never gets a valid digest."""
        check_replaced(self._digests, self._meter, self._executor)

    def _check_sums(self) -> None:
        for finding in find_damage(self._sums, self._meter, n_threads=1):
            raise IntegrityError(
                finding.message,
                path=self._path_of(finding.shard),
                tensor=finding.tensor,
                expected=finding.expected,
                found=finding.found,
                hint="The file is damaged: get it again. check=False (--no-check) converts it as it is",
            )

    def _path_of(self, file: str) -> str:
        source = next(check.source for check in self._sums if check.file == file)
        return source if isinstance(source, str) else source.name

    @contextmanager
    def summing(self) -> Iterator[Callable[[], None]]:
        """Check the sources while the block writes; the yielded function waits for the checks and raises."""
        with Workers(1, "tensorkeep-sums") as thread:
            future = thread.submit(self._check_sums)
            try:
                yield future.result
            except BaseException:
                self._meter.stop()
                raise

    def read_back(self, paths: Collection[str]) -> None:
        """Check the written files against the digests in their headers, which were computed from the sources."""
        self.is_read_back = bool(paths)
        for path in paths if self._is_wanted else ():
            found = verify(path, progress=self.part(), executor=self._executor, trust=False)  # nobody signed it yet
            refuse(found.findings, split(path)[1])
