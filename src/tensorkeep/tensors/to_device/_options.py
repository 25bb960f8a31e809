"""What a load to a device may use, for all loads within a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

MIN_HOST_BUDGET: Final = 2**20
"""Bytes of the smallest host budget."""

_MAX_THREADS: Final = 16
"""Threads that read for one device; one copies about 8 GB/s out of the page cache."""


class StagingOptions(msgspec.Struct, frozen=True):
    """What a load to a device may use.

    Attributes:
        host_budget: Bytes of the CPU's memory that hold what is read until the device has copied it.
        device_budget: Bytes of the device's memory that the tensors of one load may take; None for all that is free.
        n_threads: Threads that read.
    """

    host_budget: int = 256 * 2**20
    device_budget: int | None = None
    n_threads: int = min(_MAX_THREADS, os.cpu_count() or 1)


_DEFAULT: Final = StagingOptions()

_options: Final[ContextVar[StagingOptions]] = ContextVar("tensorkeep_staging")


def staging_options() -> StagingOptions:
    """Return the options of the block that is being executed."""
    return _options.get(_DEFAULT)


@contextmanager
def staging(
    *, host_budget: int | None = None, device_budget: int | None = None, n_threads: int | None = None
) -> Iterator[None]:
    """Set what loads to a device may use, within a `with` block and only in its thread or task.

    Loads to CUDA and XPU devices pass through pinned memory of the CPU: threads read into it while the device copies
    out of it. This says how much of that there is, and how large the result may be. Inner blocks override outer ones.

        with tensorkeep.staging(host_budget=64 * 2**20, device_budget=20 * 2**30):
            weights = tensorkeep.load("checkpoint", framework="torch", device="cuda")

    Args:
        host_budget: Bytes of pinned memory for one load, at least 1 MiB; 256 MiB by default.
        device_budget: Bytes of the device's memory that the tensors of one load may take. A larger checkpoint is
            refused before anything is read. By default, all that is free.
        n_threads: Threads that read; by default one for each core, at most 16.

    Yields:
        Nothing.

    Raises:
        ValueError: If a budget or the number of threads is too small.
    """
    given = {"host_budget": host_budget, "device_budget": device_budget, "n_threads": n_threads}
    options = msgspec.structs.replace(
        staging_options(), **{name: value for name, value in given.items() if value is not None}
    )
    if options.host_budget < MIN_HOST_BUDGET:
        raise ValueError(f"host_budget is {options.host_budget:,}: it must be at least {MIN_HOST_BUDGET:,} bytes")
    if options.n_threads < 1:
        raise ValueError(f"n_threads is {options.n_threads}: it must be at least 1")
    if options.device_budget is not None and options.device_budget < 0:
        raise ValueError(f"device_budget is {options.device_budget:,}: it must not be negative")
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)
