"""Work in the caller's executor: processes on this machine, or workers on many.

Any `concurrent.futures.Executor` will do whose tasks can be pickled: a `ProcessPoolExecutor`, dask's
`client.get_executor()`, MPI's and Ray's. A task is a function of a module and one plain value, and returns one.
Nothing that a task does is final: the process that hands out the tasks commits, or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tensorkeep.errors import TransportError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

_LEAST_NBYTES: Final = 2**24
"""Bytes beside which handing out a task costs nothing."""

_N_TASKS: Final = 64
"""Tasks that are enough for workers to end at about the same time."""

_MAX_ATTEMPTS: Final = 3
"""How often a task is handed out, if the workers that have it are lost."""


def task_nbytes(total: int, most: int) -> int:
    """Return the bytes of a task, where there are `total` to be worked on."""
    return min(max(total // _N_TASKS, _LEAST_NBYTES), most)


def batches_for_tasks(items: Iterable[_Item], nbytes_of: Callable[[_Item], int], nbytes: int) -> list[list[_Item]]:
    """Divide items, in their order, into batches that end with the item that makes them large enough."""
    batches: list[list[_Item]] = []
    room = 0
    for item in items:
        if room <= 0:
            batches.append([])
            room = nbytes
        batches[-1].append(item)
        room -= nbytes_of(item)
    return batches


def run_in(
    executor: Executor,
    work: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    on_done: Callable[[_Task, _Result], None],
) -> list[_Result]:
    """Return the result of `work` for each task, in order; the first failure cancels those that have not begun.

    A task whose worker is lost is handed out again, so doing it twice must be harmless. `on_done` is called in this
    thread.
    """
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor must be an executor with a method `submit`, not {type(executor).__name__}")
    from concurrent.futures import BrokenExecutor  # late: it takes 18 ms

    results: dict[int, _Result] = {}
    n_attempts = [0] * len(tasks)
    running: dict[Future[Any], int] = {}
    ended: SimpleQueue[Future[Any]] = SimpleQueue()

    def hand_out(number: int) -> None:
        n_attempts[number] += 1
        future = _submitted(executor, work, tasks[number])
        running[future] = number
        future.add_done_callback(ended.put)

    try:
        for number in range(len(tasks)):
            hand_out(number)
        while running:
            future = ended.get()
            number = running.pop(future)
            lost = _loss_of(future)
            if lost is None:
                result, error = future.result()
                if error is not None:
                    raise error
                results[number] = result
                on_done(tasks[number], result)
            elif isinstance(lost, BrokenExecutor) or n_attempts[number] == _MAX_ATTEMPTS:
                raise _lost(lost) from lost
            else:
                hand_out(number)
    finally:
        for future in running:
            future.cancel()
    return [results[number] for number in range(len(tasks))]


def _submitted(executor: Executor, work: Callable[[_Task], _Result], task: _Task) -> Future[Any]:
    from concurrent.futures import BrokenExecutor

    try:
        return executor.submit(_attempt, work, task)
    except BrokenExecutor as error:
        raise _lost(error) from error


def _attempt(work: Callable[[_Task], _Result], task: _Task) -> tuple[_Result | None, Exception | None]:
    """Carry out a task; its own failure is a result, so that any other is the executor's."""
    try:
        return work(task), None
    except Exception as error:  # noqa: BLE001 - raised again where the tasks are handed out
        return None, error


def _loss_of(future: Future[Any]) -> BaseException | None:
    """Return why the executor has no result."""
    from concurrent.futures import CancelledError

    try:
        return future.exception()
    except CancelledError as error:
        return error


def _lost(error: BaseException) -> TransportError:
    return TransportError(
        "the executor lost a worker, or could not run a task",
        found=f"{type(error).__name__}: {error}"[:500],
        hint="Nothing was changed. Try again with a new executor; workers may need more memory",
    )
