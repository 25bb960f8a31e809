"""Steps as they are listed: what their files take, and which of them is the newest and the best."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

import msgspec

from tensorkeep.store._steps import Step


class StepFiles(msgspec.Struct, frozen=True):
    """What the files of a step take.

    Attributes:
        nbytes: Bytes of all of them.
        own_nbytes: Bytes of those that are no other step's too, and would be free if this one were removed.
        n_shards: Files of tensors.
    """

    nbytes: int
    own_nbytes: int
    n_shards: int


class StepListing(msgspec.Struct, frozen=True):
    """A step as one of those of a store.

    Attributes:
        found: The step.
        files: What its files take.
        is_latest: Whether it is the whole one that was saved last.
        is_best: Whether it is the best one.
    """

    found: Step
    files: StepFiles
    is_latest: bool
    is_best: bool


def measure(path: str) -> StepFiles:
    """Return what the files of a step take."""
    files: list[tuple[str, os.stat_result]] = []
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                files.append((entry.name, entry.stat()))
    regular = [(name, status) for name, status in files if stat.S_ISREG(status.st_mode)]
    return StepFiles(
        nbytes=sum(status.st_size for _, status in regular),
        own_nbytes=sum(status.st_size for _, status in regular if status.st_nlink == 1),
        n_shards=sum(name.endswith(".safetensors") for name, _ in regular),
    )
