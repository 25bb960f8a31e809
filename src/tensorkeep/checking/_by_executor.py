"""Numbers of tensors, measured by the workers of an executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from tensorkeep.checkpoint import open_with
from tensorkeep.errors import SourceChangedError
from tensorkeep.executors import batches_for_tasks, run_in, task_nbytes
from tensorkeep.kinds import Opened, OpenOptions
from tensorkeep.kinds.origins import is_provable_by_others
from tensorkeep.measuring import TensorStatistics, statistics
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import is_remote

if TYPE_CHECKING:
    from concurrent.futures import Executor

Measure: TypeAlias = Callable[[Mapping[str, LazyTensor], Progress | None], dict[str, TensorStatistics]]
"""Returns the statistics of tensors."""

_MOST_NBYTES: Final = 2**30
"""Most bytes of a task; each opens the checkpoint again."""


class MeasureTask(msgspec.Struct, frozen=True):
    """Tensors to measure.

    Attributes:
        path: Absolute path of the checkpoint, or a URL with the options for reading it.
        options: How it is opened.
        headers: Name to dtype and shape.
        nbytes: Bytes of all tensors.
    """

    path: str
    options: OpenOptions
    headers: dict[str, tuple[str, tuple[int, ...]]]
    nbytes: int


def measure_here(tensors: Mapping[str, LazyTensor], progress: Progress | None) -> dict[str, TensorStatistics]:
    """Measure in threads of this process."""
    return statistics(tensors, progress=progress)


def measuring_by(executor: Executor, path: str, options: OpenOptions, opened: Opened) -> Measure:
    """Return a function that lets workers measure the tensors of a checkpoint, or this process if only it can."""
    if not all(is_provable_by_others(opened, lazy) for lazy in opened.values()):
        return measure_here
    options = msgspec.structs.replace(options, proof=opened.proof)
    at = path if is_remote(path) else os.path.abspath(path)

    def task_of(tensors: Mapping[str, LazyTensor]) -> MeasureTask:
        headers = {name: (lazy.dtype, lazy.shape) for name, lazy in tensors.items()}
        return MeasureTask(at, options, headers, sum(lazy.nbytes for lazy in tensors.values()))

    def measure(tensors: Mapping[str, LazyTensor], progress: Progress | None) -> dict[str, TensorStatistics]:
        sizes = {name: lazy.nbytes for name, lazy in tensors.items()}
        total = sum(sizes.values())
        batches = batches_for_tasks(sizes, sizes.__getitem__, task_nbytes(total, _MOST_NBYTES))
        tasks = [task_of({name: tensors[name] for name in batch}) for batch in batches]
        meter = ProgressMeter(progress, total)
        done = run_in(executor, measure_tensors, tasks, lambda task, _: meter.add(task.nbytes))
        return {name: found for of_task in done for name, found in of_task.items()}

    return measure


def measure_tensors(task: MeasureTask) -> dict[str, TensorStatistics]:
    """Measure some tensors; that is all a worker does for `check`."""
    with open_with(task.path, task.options, trust=False) as opened:
        for name, header in task.headers.items():
            if name not in opened or (opened[name].dtype, opened[name].shape) != header:
                raise SourceChangedError(
                    "a worker does not find the checkpoint that it was told to measure",
                    path=task.path,
                    tensor=name,
                    hint="All workers must see the same files",
                )
        return statistics({name: opened[name] for name in task.headers})
