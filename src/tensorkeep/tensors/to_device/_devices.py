"""Loads to several devices at the same time, which share what one load may use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from tensorkeep.parallel import ProgressMeter, parallel_for_each
from tensorkeep.tensors.to_device._options import MIN_HOST_BUDGET, StagingOptions, staging_options

Report: TypeAlias = Callable[[int], None]
"""Takes the bytes that were read since the last call."""

_Load = TypeVar("_Load")
_Result = TypeVar("_Result")


def for_each_device(
    loads: Sequence[_Load],
    carry_out: Callable[[_Load, StagingOptions, Report | None], _Result],
    report: Report | None,
) -> list[_Result]:
    """Carry out the load of each device; the first failure ends the others."""
    options = staging_options()
    if len(loads) == 1:
        return [carry_out(loads[0], options, report)]
    if not loads:
        return []
    n_at_once = max(1, min(len(loads), options.host_budget // MIN_HOST_BUDGET, options.n_threads))
    share = options.divided(n_at_once)
    results: dict[int, _Result] = {}
    meter = ProgressMeter(None, 0)
    reporting = threading.Lock()

    def add(nbytes: int) -> None:
        meter.add(nbytes)  # fails if another load has
        if report is not None:
            with reporting:
                report(nbytes)

    def load(place: int) -> None:
        try:
            results[place] = carry_out(loads[place], share, add)
        except BaseException:
            meter.stop()
            raise

    parallel_for_each(range(len(loads)), load, n_threads=n_at_once)
    return [results[place] for place in range(len(loads))]
