"""Statistics of all tensors of a checkpoint, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tensorkeep.kinds import Opened
from tensorkeep.measuring import TensorStatistics, statistics
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number
from tensorkeep.viewing._work import Outbox

_BATCH_NBYTES: Final = 64 * 2**20
_MAX_BATCH: Final = 1000
"""Tensors that are measured together, if they are small."""


def survey(opened: Opened, names: tuple[str, ...], outbox: Outbox) -> dict[str, Any]:
    """Measure all tensors, with a row for each, and list those with something odd."""
    meter = ProgressMeter(outbox.progress, sum(lazy.nbytes for lazy in opened.values()))
    odd: dict[str, list[int]] = {"n_nan_tensors": [], "n_inf_tensors": [], "zero_tensors": []}
    for batch in _batches(opened, names):
        found = statistics({names[t]: lazy for t, lazy in batch.items()}, progress=_onward(meter))
        for t in batch:
            each = found[names[t]]
            _note(odd, t, each)
            outbox.add(_row(t, each))
    return {"n_tensors": len(names), **odd}


def _batches(opened: Opened, names: tuple[str, ...]) -> Iterator[Mapping[int, LazyTensor]]:
    """Yield tensors by their places, a few at a time."""
    batch: dict[int, LazyTensor] = {}
    nbytes = 0
    for t, name in enumerate(names):
        batch[t] = opened[name]
        nbytes += batch[t].nbytes
        if nbytes >= _BATCH_NBYTES or len(batch) == _MAX_BATCH:
            yield batch
            batch, nbytes = {}, 0
    if batch:
        yield batch


def _onward(meter: ProgressMeter) -> Any:
    count = meter.counting()
    return lambda done, _: count(done)


def _note(odd: dict[str, list[int]], t: int, found: TensorStatistics) -> None:
    if found.n_nan:
        odd["n_nan_tensors"].append(t)
    if found.n_inf:
        odd["n_inf_tensors"].append(t)
    if found.n_elements and found.n_zeros == found.n_elements:
        odd["zero_tensors"].append(t)


def _row(t: int, found: TensorStatistics) -> list[Any]:
    numbers = (found.min, found.max, found.mean, found.std, found.norm, found.n_zeros, found.n_nan, found.n_inf)
    return [t, *map(number, numbers), found.problem]
