"""Everything that is asked of a broken file: to be opened, listed, read, checked and scanned."""

from __future__ import annotations

import time
from pathlib import Path

import tensorkeep
from tensorkeep.errors import TensorkeepError

_MAX_TENSORS = 12
"""Tensors of one file that are read."""

_MAX_FOUND = 3
"""Tensors that are found one by one."""

_USUAL_NAMES = ("weight", "bias")
"""What is asked for if a file cannot be listed."""

_MAX_READ_NBYTES = 2**22
"""Size of the largest tensor that is read: a broken file may declare zeros without end."""


def read_all(target: Path) -> tuple[str, float]:
    """Ask everything of what is at a path.

    Args:
        target: The file or directory.

    Returns:
        `"value"`, the class of tensorkeep's error, or what else happened; and the processor time in seconds.
    """
    begin = time.process_time()
    outcome = "value"
    for ask in (_open_and_read, _find, _verify, _scan):
        try:
            ask(target)
        except TensorkeepError as error:
            if outcome == "value":
                outcome = type(error).__name__
        except BaseException as error:  # noqa: BLE001 - any other error is a finding
            outcome = f"FOREIGN {ask.__name__[1:]} {type(error).__name__}: {str(error)[:100]}"
            break
    return outcome, time.process_time() - begin


def _open_and_read(target: Path) -> None:
    with tensorkeep.open(target) as opened:
        opened.describe()
        _ = (opened.metadata, opened.unknowns, opened.aliases, opened.left_out())
        fault: TensorkeepError | None = None
        for name in list(opened)[:_MAX_TENSORS]:
            try:
                _read_tensor(opened, name)
            except TensorkeepError as error:
                fault = error
        for strings in list(opened.strings.values())[:_MAX_TENSORS]:
            try:
                strings.load()
            except TensorkeepError as error:
                fault = error
        if fault is not None:
            raise fault


def _read_tensor(opened: tensorkeep.Checkpoint, name: str) -> None:
    lazy = opened[name]
    if lazy.nbytes <= _MAX_READ_NBYTES:
        whole = lazy.load()
        if tuple(whole.shape) != tuple(lazy.shape):
            raise RuntimeError(f"{name} has shape {whole.shape} and not {lazy.shape}")
    if lazy.shape and lazy.shape[0]:
        _ = lazy[-1]


def _find(target: Path) -> None:
    """Ask for tensors one by one of a file that was just opened: they are those that it lists."""
    with tensorkeep.open(target) as opened:
        try:
            listed = {name: opened[name].entry for name in list(opened)[:_MAX_FOUND]}
        except TensorkeepError:
            listed = None
    for name in _USUAL_NAMES if listed is None else listed:
        with tensorkeep.open(target) as opened:
            found = opened[name].entry
            if listed is not None and found != listed[name]:
                raise RuntimeError(f"{name} is {found}, and listed as {listed[name]}")


def _verify(target: Path) -> None:
    tensorkeep.verify(target)


def _scan(target: Path) -> None:
    tensorkeep.scan(target)
