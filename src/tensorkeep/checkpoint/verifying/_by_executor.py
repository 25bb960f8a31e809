"""Checksums that the workers of an executor compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.digests import BLAKE3, CRC32, CRC32C, SHA256, Algorithm
from tensorkeep.errors import SourceChangedError, SourceMissingError, TensorkeepError
from tensorkeep.executors import batches_for_tasks, run_in, task_nbytes
from tensorkeep.kinds import Check
from tensorkeep.parallel import ProgressMeter
from tensorkeep.transport import ByteRange, HandedOver, sum_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MOST_NBYTES: Final = 2**28
"""Most bytes of a task, if no single tensor has more."""

_ALGORITHMS: Final[Mapping[str, Algorithm]] = {each.name: each for each in (BLAKE3, SHA256, CRC32, CRC32C)}


class SumTask(msgspec.Struct, frozen=True):
    """Ranges of one file to sum.

    Attributes:
        file: The file.
        algorithm: Name of the algorithm.
        places: Which checks these are.
        spans: First byte of each range, and the byte after its last.
    """

    file: HandedOver
    algorithm: str
    places: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all ranges."""
        return sum(stop - start for start, stop in self.spans)


Sum = bytes | TensorkeepError
"""A checksum, or the error that came in its place."""


def sums_by(executor: Executor, checks: Sequence[Check], meter: ProgressMeter) -> tuple[dict[int, Sum], list[Check]]:
    """Return the checksums of the checks that workers can compute, by their places, and all other checks."""
    tasks, rest = _tasks(checks)
    sums: dict[int, Sum] = {}

    def take(task: SumTask, found: list[Sum]) -> None:
        sums.update(zip(task.places, found, strict=True))
        meter.add(task.nbytes)

    run_in(executor, sum_ranges, tasks, take)
    return sums, rest


def _tasks(checks: Sequence[Check]) -> tuple[list[SumTask], list[Check]]:
    groups: dict[tuple[int | str, str], list[int]] = {}
    files: dict[int | str, HandedOver | None] = {}
    rest: list[Check] = []
    for place, check in enumerate(checks):
        key = check.source if isinstance(check.source, str) else id(check.source)
        if key not in files:
            files[key] = HandedOver.of(check.source)
        if files[key] is None or check.algorithm is not _ALGORITHMS.get(check.algorithm.name):
            rest.append(check)
        else:
            groups.setdefault((key, check.algorithm.name), []).append(place)
    total = sum(len(checks[place].span) for places in groups.values() for place in places)
    nbytes = task_nbytes(total, _MOST_NBYTES)
    tasks: list[SumTask] = []
    for (key, algorithm), places in groups.items():
        file = files[key]
        if file is None:
            continue
        for batch in batches_for_tasks(places, lambda place: len(checks[place].span), nbytes):
            spans = tuple((checks[place].span.start, checks[place].span.stop) for place in batch)
            tasks.append(SumTask(file, algorithm, tuple(batch), spans))
    return sorted(tasks, key=lambda task: -task.nbytes), rest


def sum_ranges(task: SumTask) -> list[Sum]:
    """Sum ranges of a file; that is all a worker does for `verify`."""
    algorithm = _ALGORITHMS[task.algorithm]
    found: list[Sum] = []
    with task.file.opened() as source:
        for start, stop in task.spans:
            try:
                found.append(sum_of(source, ByteRange(start, stop), algorithm))
            except (SourceChangedError, SourceMissingError):
                raise
            except TensorkeepError as error:
                found.append(error)
    return found
