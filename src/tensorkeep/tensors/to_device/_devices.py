"""Loads to several devices at the same time, which share what one load may use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tensorkeep.parallel import ProgressMeter, parallel_for_each
from tensorkeep.tensors.to_device._options import MIN_HOST_BUDGET, StagingOptions, staging_options
from tensorkeep.tensors.to_device._pipeline import Filling, Report

_Load = TypeVar("_Load")


def fill_each_device(
    loads: Sequence[_Load], begin: Callable[[_Load, StagingOptions], Filling], report: Report | None
) -> None:
    """Fill the tensors of each device; the first failure ends the others.

    All are begun by the calling thread, whose work on the devices may still use the memory that the tensors get.
    """
    if not loads:
        return
    options = staging_options()
    n_at_once = max(1, min(len(loads), options.host_budget // MIN_HOST_BUDGET, options.n_threads))
    share = options.divided(n_at_once)
    fillings: list[Filling] = []
    try:
        for load in loads:
            fillings.append(begin(load, share))  # noqa: PERF401 - those that were begun are ended if one fails
        _run(fillings, n_at_once, report)
    finally:
        for filling in fillings:
            filling.end()


def _run(fillings: Sequence[Filling], n_at_once: int, report: Report | None) -> None:
    if len(fillings) == 1:
        fillings[0].run(report)
        return
    meter = ProgressMeter(None, 0)
    reporting = threading.Lock()

    def add(nbytes: int) -> None:
        meter.add(nbytes)  # fails if another one has
        if report is not None:
            with reporting:
                report(nbytes)

    def run(filling: Filling) -> None:
        try:
            filling.run(add)
        except BaseException:
            meter.stop()
            raise

    parallel_for_each(fillings, run, n_threads=n_at_once)
