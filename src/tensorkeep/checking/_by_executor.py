"""Numbers of tensors, measured by the workers of an executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import SourceChangedError
from tensorkeep.executors import run_in
from tensorkeep.measuring import TensorStatistics, statistics
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import is_remote

if TYPE_CHECKING:
    from concurrent.futures import Executor

Measure: TypeAlias = Callable[[Mapping[str, LazyTensor], Progress | None], dict[str, TensorStatistics]]
"""Returns the statistics of tensors."""

_TASK_NBYTES: Final = (2**24, 2**30)
"""Fewest and most bytes of a task, if no single tensor is larger: each opens the checkpoint again."""

_N_TASKS: Final = 64


class MeasureTask(msgspec.Struct, frozen=True):
    """Tensors to measure.

    Attributes:
        path: Absolute path of the checkpoint, or a URL with the options for reading it.
        variant: Which checkpoint of a directory.
        engine: The library that reads it.
        headers: Name to dtype and shape.
        nbytes: Bytes of all tensors.
    """

    path: str
    variant: str | None
    engine: str | None
    headers: dict[str, tuple[str, tuple[int, ...]]]
    nbytes: int


def measure_here(tensors: Mapping[str, LazyTensor], progress: Progress | None) -> dict[str, TensorStatistics]:
    """Measure in threads of this process."""
    return statistics(tensors, progress=progress)


def measuring_by(executor: Executor, path: str, variant: str | None, engine: str | None) -> Measure:
    """Return a function that lets workers measure the tensors of a checkpoint."""
    at = path if is_remote(path) else os.path.abspath(path)

    def measure(tensors: Mapping[str, LazyTensor], progress: Progress | None) -> dict[str, TensorStatistics]:
        empty = MeasureTask(at, variant, engine, {}, 0)
        tasks = list(_tasks(tensors, empty))
        meter = ProgressMeter(progress, sum(task.nbytes for task in tasks))
        done = run_in(executor, measure_tensors, tasks, lambda task, _: meter.add(task.nbytes))
        return {name: found for of_task in done for name, found in of_task.items()}

    return measure


def _tasks(tensors: Mapping[str, LazyTensor], empty: MeasureTask) -> Iterator[MeasureTask]:
    total = sum(lazy.nbytes for lazy in tensors.values())
    max_nbytes = min(max(total // _N_TASKS, _TASK_NBYTES[0]), _TASK_NBYTES[1])
    headers: dict[str, tuple[str, tuple[int, ...]]] = {}
    nbytes = 0
    for name, lazy in tensors.items():
        headers[name] = (lazy.dtype, lazy.shape)
        nbytes += lazy.nbytes
        if nbytes >= max_nbytes:
            yield msgspec.structs.replace(empty, headers=headers, nbytes=nbytes)
            headers, nbytes = {}, 0
    if headers:
        yield msgspec.structs.replace(empty, headers=headers, nbytes=nbytes)


def measure_tensors(task: MeasureTask) -> dict[str, TensorStatistics]:
    """Measure some tensors; that is all a worker does for `check`."""
    with open_checkpoint(task.path, variant=task.variant, engine=task.engine) as opened:
        for name, header in task.headers.items():
            if name not in opened or (opened[name].dtype, opened[name].shape) != header:
                raise SourceChangedError(
                    "a worker does not find the checkpoint that it was told to measure",
                    path=task.path,
                    tensor=name,
                    hint="All workers must see the same files",
                )
        return statistics({name: opened[name] for name in task.headers})
