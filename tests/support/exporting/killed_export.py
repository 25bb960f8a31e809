"""A program that kills exports over an older export at every call that changes anything, and lets each call fail.

`killed_export.py FOLDER TARGET…`: for each target and each call, one child process dies after the call, and in
another one the disk is full at the call. Prints one line of JSON for each target, with the values of all tensors that
are found afterwards, and when the export is repeated: 1 in the old export, 2 in the new one; None if neither is there
as a whole.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import tensorkeep
from tensorkeep.errors import TransportError
from tests.support.transport.killer import CHANGES, arm

NAMES = ("a", "b", "d")
NEEDING_ROOM = ("write", "writev", "pwrite", "fsync", "replace", "mkdir")


def fill_disk(number: int) -> None:
    """Make calls that need room fail, from the one of that number on."""
    n_calls = count(1)

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            if next(n_calls) >= number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **keywords)

        return counted

    for name in NEEDING_ROOM:
        setattr(os, name, failing(getattr(os, name)))


def in_child(prepare: Callable[[], None], source: Path, target: Path) -> bool:
    """Export in a process of its own; return whether it ended well."""
    child = os.fork()
    if not child:
        prepare()
        try:
            tensorkeep.export(source, target, overwrite=True)
        except TransportError as error:
            os._exit(1 if "No space left" in str(error) else 2)
        except BaseException:
            os._exit(3)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) < 2, status
    return status == 0


def found_in(target: Path) -> int | None:
    try:
        arrays = tensorkeep.load(target)
    except tensorkeep.TensorkeepError:
        return None
    values = {value for name in NAMES for value in np.unique(arrays[name]).tolist()}
    return int(values.pop()) if len(values) == 1 else None


def tried(prepare: Callable[[], None], folder: Path, name: str) -> tuple[bool, int | None, int | None]:
    """Export over an older export, then again; return whether the first went well, and what is found after each."""
    at = folder / "target"
    at.mkdir()
    tensorkeep.export(folder / "1.safetensors", at / name, durable=False)
    ended_well = in_child(prepare, folder / "2.safetensors", at / name)
    first = found_in(at / name)
    tensorkeep.export(folder / "2.safetensors", at / name, overwrite=True, durable=False)
    second = found_in(at / name)
    has_leftovers = any(path.name.startswith(".") for path in at.iterdir())
    shutil.rmtree(at)
    return ended_well, first, None if has_leftovers else second


def all_tried(prepare: Callable[[int], None], folder: Path, name: str) -> list[tuple[int | None, int | None]]:
    found = []
    for number in count(1):
        ended_well, first, second = tried(lambda number=number: prepare(number), folder, name)
        found.append((first, second))
        if ended_well:
            break
    return found


def main(folder: Path, *targets: str) -> None:
    for value in (1, 2):
        tensorkeep.save({name: np.full((3, 4), value, np.float32) for name in NAMES}, folder / f"{value}.safetensors")
    for name in targets:
        killed = all_tried(lambda number: arm(number, CHANGES, halfway=False), folder, name)
        full = all_tried(fill_disk, folder, name)
        print(json.dumps({"target": name, "killed": killed, "full": full}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
