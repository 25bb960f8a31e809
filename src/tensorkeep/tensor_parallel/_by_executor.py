"""Directories of ranks that the workers of an executor fill."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.checkpoint import Place, Progress, ReservedFiles
from tensorkeep.executors import batches_for_tasks, run_in, task_nbytes
from tensorkeep.kinds import Opened
from tensorkeep.kinds.origins import SourceToOpen
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensor_parallel._fill import Filled, PartToFill, TensorToFill, fill
from tensorkeep.transport import Reserved

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MOST_NBYTES: Final = 2**30
"""Most bytes of a task; each opens the checkpoint again."""


class FillTask(msgspec.Struct, frozen=True):
    """Tensors to divide.

    Attributes:
        source: The checkpoint that has them.
        tensors: The tensors, with the places of their parts in `files`.
        digests: The digest that each must have, or None.
        nbytes: Bytes of all tensors.
        files: The reserved files.
    """

    source: SourceToOpen
    tensors: tuple[TensorToFill, ...]
    digests: tuple[bytes | None, ...]
    nbytes: int
    files: tuple[Reserved, ...]


def filling_by(
    executor: Executor, opened: Opened, source: SourceToOpen, progress: Progress | None
) -> Callable[[Sequence[TensorToFill], tuple[Reserved, ...]], Sequence[Filled]]:
    """Return a function that lets workers fill all tensors."""

    def fill_all(wanted: Sequence[TensorToFill], reserved: tuple[Reserved, ...]) -> Sequence[Filled]:
        tasks = list(_tasks(wanted, opened, source, reserved))
        meter = ProgressMeter(progress, sum(task.nbytes for task in tasks))
        done = run_in(executor, fill_tensors, tasks, lambda task, _: meter.add(task.nbytes))
        return [filled for of_task in done for filled in of_task]

    return fill_all


def _tasks(
    wanted: Sequence[TensorToFill], opened: Opened, source: SourceToOpen, reserved: tuple[Reserved, ...]
) -> Iterator[FillTask]:
    sizes = {each.name: opened[each.name].nbytes for each in wanted}
    nbytes_of_task = task_nbytes(sum(sizes.values()), _MOST_NBYTES)
    for batch in batches_for_tasks(wanted, lambda each: sizes[each.name], nbytes_of_task):
        numbers = sorted({part.place.file for tensor in batch for part in tensor.parts})
        tensors = tuple(_renumbered(tensor, numbers) for tensor in batch)
        digests = tuple(opened[tensor.name].digest for tensor in batch)
        nbytes = sum(sizes[tensor.name] for tensor in batch)
        yield FillTask(source, tensors, digests, nbytes, tuple(reserved[number] for number in numbers))


def _renumbered(tensor: TensorToFill, numbers: Sequence[int]) -> TensorToFill:
    """Return a tensor whose places count only some of the files."""
    place_of = {number: place for place, number in enumerate(numbers)}
    parts = tuple(PartToFill(Place(place_of[part.place.file], part.place.start), part.spans) for part in tensor.parts)
    return msgspec.structs.replace(tensor, parts=parts)


def fill_tensors(task: FillTask) -> list[Filled]:
    """Divide some tensors; that is all a worker does."""
    with task.source.opened() as opened, ReservedFiles(task.files, os.getpid) as reserved:
        return [
            fill(opened[tensor.name], tensor, reserved, lambda _: None, digest)
            for tensor, digest in zip(task.tensors, task.digests, strict=True)
        ]
