"""All processes of a run as one: they write into one directory, and what fails in one of them fails in all.

They speak through a group of their own, so that no word of it is ever taken for a gradient.
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

_Result = TypeVar("_Result")

_GROUP: Final = "_tensorkeep_group"
"""Attribute of an accelerator: the group of processes that this module speaks to."""

_PATIENCE_S: Final = 60.0
"""Seconds after which a process says that it waits for others."""

_TIMEOUT: Final = timedelta(minutes=30)
"""After which it gives up; torch's own groups wait as long."""


def connect(accelerator: Any) -> None:
    """Let the processes of a run speak to each other; all of them must call it."""
    several = accelerator.num_processes > 1
    setattr(accelerator, _GROUP, distributed.new_group(backend="gloo", timeout=_TIMEOUT) if several else None)


def meet(accelerator: Any, where: str) -> None:
    """Wait until all processes have come to the same place."""
    group = getattr(accelerator, _GROUP)
    if group is None:
        return
    advice = f"call {where} in all of them, and not only where is_main_process is true"
    waiting = threading.Timer(_PATIENCE_S, warnings.warn, [f"{where} waits for the other processes: {advice}"])
    waiting.daemon = True
    waiting.start()
    try:
        distributed.monitored_barrier(group, _TIMEOUT, wait_all_ranks=True)
    except RuntimeError as error:
        raise TensorkeepError(
            f"not all processes have called {where}", found=str(error), hint=advice.capitalize()
        ) from error
    finally:
        waiting.cancel()


def gather(accelerator: Any, value: _Result) -> list[_Result]:
    """Give all processes what each of them has."""
    group = getattr(accelerator, _GROUP)
    if group is None:
        return [value]
    values: list[Any] = [None] * accelerator.num_processes
    distributed.all_gather_object(values, value, group)
    return values


def on_main(accelerator: Any, action: Callable[[], _Result]) -> _Result:
    """Let the main process do something, and give all of them what came of it."""
    result = error = None
    if accelerator.is_main_process:
        try:
            result = action()
        except BaseException as raised:  # noqa: BLE001 - the others would wait for ever
            error = raised
    result, failure = gather(accelerator, (result, _portable(error)))[0]
    try:
        if error is not None:
            raise error
        if failure is not None:
            _fail(failure, 0)
    finally:
        del error, failure  # whose traceback leads to this frame, and to all that others hold
    return result  # type: ignore[return-value]  # it is None only where the action returned that


@contextmanager
def together(accelerator: Any) -> Iterator[None]:
    """Wait at the end of the block until all processes have come there, and fail in all if one has failed."""
    error = None
    try:
        yield
    except BaseException as raised:  # noqa: BLE001 - the others would wait for ever
        error = raised
    failures = gather(accelerator, _portable(error))
    if error is not None:
        raise error
    for number, failure in enumerate(failures):
        if failure is not None:
            _fail(failure, number)


@contextmanager
def shared_folder(accelerator: Any, path: str) -> Iterator[str]:
    """Save a directory that all processes write into, complete or not at all."""
    with ExitStack() as stack:
        staging = on_main(accelerator, lambda: stack.enter_context(save_folder(path)))
        with together(accelerator):
            if not os.path.isdir(staging):
                raise SourceMissingError(
                    "this process does not see the directory that all are to write into",
                    path=staging,
                    hint="Save on a file system that all processes share",
                )
            yield staging
        on_main(accelerator, stack.close)


def _portable(error: BaseException | None) -> TensorkeepError | None:
    """Return an error that goes from process to process."""
    if error is None or isinstance(error, TensorkeepError):
        return error
    return TensorkeepError(f"{type(error).__name__}: {error}")


def _fail(error: TensorkeepError, number: int) -> NoReturn:
    error.add_note(f"This is the error of process {number}; nothing else went wrong in this one")
    raise error
