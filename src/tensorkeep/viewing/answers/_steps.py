"""The steps of a store: metrics, sizes, and what they share."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any

import msgspec

from tensorkeep.store import CheckpointStore, StepListing, place_of, recorded_rules
from tensorkeep.viewing._json import number

_Files = dict[tuple[int, int], int]
"""Device and number of a file to its size."""


def steps(of: str, shown_path: str, store: CheckpointStore) -> dict[str, Any]:
    """List the steps, ascending."""
    rules = recorded_rules(place_of(store.root))
    found = []
    before: _Files = {}
    for each in store.listing():
        files = _files_of(each.found.path)
        shared = sum(nbytes for file, nbytes in files.items() if file in before)
        found.append(_step(of, each, shared))
        before = files
    names = dict.fromkeys(name for step in found for name in step["metrics"])
    return {
        "path": shown_path,
        "steps": found,
        "metric_names": list(names),
        "rules": None if rules is None else msgspec.to_builtins(rules),
    }


def _step(of: str, step: StepListing, shared_nbytes: int) -> dict[str, Any]:
    record, files = step.found.record, step.files
    return {
        "of": f"{of}:{step.found.step}",
        "step": step.found.step,
        "condition": step.found.condition,
        "problem": step.found.problem,
        "saved_at": None if record is None else record.saved_at,
        "metrics": {name: number(value) for name, value in step.found.metrics.items()},
        "nbytes": files.nbytes,
        "own_nbytes": files.own_nbytes,
        "shared_nbytes": files.nbytes - files.own_nbytes,
        "shared_with_previous_nbytes": shared_nbytes,
        "n_shards": files.n_shards,
        "is_latest": step.is_latest,
        "is_best": step.is_best,
    }


def _files_of(path: str) -> _Files:
    found: _Files = {}
    with suppress(OSError), os.scandir(path) as entries:  # it may be removed meanwhile
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found[status.st_dev, status.st_ino] = status.st_size
    return found
