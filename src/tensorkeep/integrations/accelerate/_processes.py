"""All processes of a run as one: they write into one directory, and an error in one is raised in all.

They communicate through a group of their own, so that no message can be taken for a gradient.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar

from torch import distributed

from tensorkeep.checkpoint import save_folder
from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.parallel import try_to_start

_Result = TypeVar("_Result")

_GROUP: Final = "_tensorkeep_group"
"""Attribute of an accelerator: the process group of this module."""

_PATIENCE_S: Final = 60.0
"""Seconds after which a process warns that it is waiting for others."""

_TIMEOUT: Final = timedelta(minutes=30)
"""Time after which it gives up, as torch's own groups do."""


def connect(accelerator: Any) -> None:
    """Create the process group; all processes must call it."""
    several = accelerator.num_processes > 1
    setattr(accelerator, _GROUP, distributed.new_group(backend="gloo", timeout=_TIMEOUT) if several else None)


def meet(accelerator: Any, where: str) -> None:
    """Wait until all processes have called the same method."""
    group = getattr(accelerator, _GROUP)
    if group is None:
        return
    advice = f"call {where} in all of them, and not only where is_main_process is true"
    waiting = threading.Timer(_PATIENCE_S, warnings.warn, [f"{where} waits for the other processes: {advice}"])
    waiting.daemon = True
    try_to_start(waiting)
    try:
        distributed.monitored_barrier(group, _TIMEOUT, wait_all_ranks=True)
    except RuntimeError as error:
        raise TensorkeepError(
            f"not all processes have called {where}", found=str(error), hint=advice.capitalize()
        ) from error
    finally:
        waiting.cancel()


def gather(accelerator: Any, value: _Result) -> list[_Result]:
    """Return the values of all processes, in all of them."""
    group = getattr(accelerator, _GROUP)
    if group is None:
        return [value]
    values: list[Any] = [None] * accelerator.num_processes
    distributed.all_gather_object(values, value, group)
    return values


def on_main(accelerator: Any, action: Callable[[], _Result]) -> _Result:
    """Do something in the main process, and return its result, or raise its error, in all of them."""
    result = error = None
    if accelerator.is_main_process:
        try:
            result = action()
        except BaseException as raised:  # noqa: BLE001 - the others would wait forever
            error = raised
    result, failure = gather(accelerator, (result, _portable(error)))[0]
    try:
        if error is not None:
            raise error
        if failure is not None:
            _fail(failure, 0)
    finally:
        del error, failure  # their tracebacks refer to this frame: a cycle that would keep its callers' objects alive
    return result  # type: ignore[return-value]  # None only if the action returned None


@contextmanager
def together(accelerator: Any) -> Iterator[None]:
    """Wait at the end of the block for all processes, and fail in all of them if one failed."""
    error = None
    try:
        yield
    except BaseException as raised:  # noqa: BLE001 - the others would wait forever
        error = raised
    failures = gather(accelerator, _portable(error))
    if error is not None:
        raise error
    for number, failure in enumerate(failures):
        if failure is not None:
            _fail(failure, number)


@contextmanager
def shared_folder(accelerator: Any, path: str) -> Iterator[str]:
    """Save a directory that all processes write into, completely or not at all."""
    with ExitStack() as stack:
        staging = on_main(accelerator, lambda: stack.enter_context(save_folder(path)))
        with together(accelerator):
            if not os.path.isdir(staging):
                raise SourceMissingError(
                    "this process does not see the directory that all processes write into",
                    path=staging,
                    hint="Save on a file system that all processes share",
                )
            yield staging
        on_main(accelerator, stack.close)


def _portable(error: BaseException | None) -> TensorkeepError | None:
    """Return an error that can be sent to other processes."""
    if error is None or isinstance(error, TensorkeepError):
        return error
    return TensorkeepError(f"{type(error).__name__}: {error}")


def _fail(error: TensorkeepError, number: int) -> NoReturn:
    error.add_note(f"This error was raised in process {number}, not in this one")
    raise error
