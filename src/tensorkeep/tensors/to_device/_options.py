"""What loads to devices and saves from them may use, within a block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

MIN_HOST_BUDGET: Final = 2**20
"""Bytes of the smallest host budget."""

_MAX_THREADS: Final = 16
"""Threads that read for one device; one copies about 8 GB/s out of the page cache."""


class StagingOptions(msgspec.Struct, frozen=True):
    """What a load to a device, or a save from one, may use.

    Attributes:
        host_budget: Bytes of the CPU's memory that the buffers take.
        device_budget: Bytes of a device's memory that the tensors of one load, or the copies of a snapshot, may take:
            of each device, or by device; None for all that is free.
        n_threads: Threads that read or write.
        own: Whether each tensor has memory of its own; otherwise small ones share some.
    """

    host_budget: int = 256 * 2**20
    device_budget: int | Mapping[Any, int] | None = None
    n_threads: int = min(_MAX_THREADS, os.cpu_count() or 1)
    own: bool = True

    def budget_of(self, device: str) -> int | None:
        """Return the bytes of a device, such as `"cuda:0"`, that the tensors of one load may take."""
        budgets = self.device_budget
        if not isinstance(budgets, Mapping):
            return budgets
        return next((nbytes for key, nbytes in budgets.items() if _is_named(device, key)), None)

    def divided(self, n_loads: int) -> StagingOptions:
        """Return what each of several loads may use that run at the same time."""
        return msgspec.structs.replace(
            self, host_budget=self.host_budget // n_loads, n_threads=max(1, self.n_threads // n_loads)
        )


def _is_named(device: str, key: Any) -> bool:
    """Whether a caller's key, such as 0 or `"cuda"`, means a device."""
    return f"cuda:{key}" == device if isinstance(key, int) else device in {str(key), f"{key}:0"}


_DEFAULT: Final = StagingOptions()

_options: Final[ContextVar[StagingOptions]] = ContextVar("tensorkeep_staging")


def staging_options() -> StagingOptions:
    """Return the options of the block that is being executed."""
    return _options.get(_DEFAULT)


@contextmanager
def staging_with(options: StagingOptions) -> Iterator[None]:
    """Set all options at once, within a block."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


@contextmanager
def staging(
    *,
    host_budget: int | None = None,
    device_budget: int | Mapping[Any, int] | None = None,
    n_threads: int | None = None,
    own: bool | None = None,
) -> Iterator[None]:
    """Set what loads to devices and saves from them may use, within a `with` block and only in its thread or task.

    Loads to CUDA and XPU devices pass through pinned memory of the CPU: threads read into it while the device copies
    out of it. Saves to files of this machine pass through it the other way. This says how much of that there is, and
    how large the result of a load may be. Inner blocks override outer ones.

        with tensorkeep.staging(host_budget=64 * 2**20, device_budget=20 * 2**30):
            weights = tensorkeep.load("checkpoint", framework="torch", device="cuda")

    Args:
        host_budget: Bytes of pinned memory for one load or save, at least 1 MiB; 256 MiB by default. torch keeps
            what was pinned for the next one.
        device_budget: Bytes of a device's memory that the tensors of one load may take: a number for each device, or
            a dict such as `{0: 20 * 2**30, "cuda:1": 8 * 2**30}`. A larger checkpoint is refused before anything is
            read. By default, all that is free. The copies of `save_async(snapshot="device")` take no more either;
            what does not fit is copied to the CPU.
        n_threads: Threads that read files of this machine, or write and hash what a device has copied, the calling
            one included; by default one for each core, at most 16. What is read from a server, unpacked or decrypted
            may take more.
        own: Whether each tensor has memory of its own, the default. If False, tensors of up to 256 KiB are views of
            allocations of up to 16 MiB, which is faster for very many. Such an allocation is freed with the last of
            its tensors.

    Yields:
        Nothing.

    Raises:
        ValueError: If a budget or the number of threads is too small.
    """
    given = {"host_budget": host_budget, "device_budget": device_budget, "n_threads": n_threads, "own": own}
    options = msgspec.structs.replace(
        staging_options(), **{name: value for name, value in given.items() if value is not None}
    )
    if options.host_budget < MIN_HOST_BUDGET:
        raise ValueError(f"host_budget is {options.host_budget:,}: it must be at least {MIN_HOST_BUDGET:,} bytes")
    if options.n_threads < 1:
        raise ValueError(f"n_threads is {options.n_threads}: it must be at least 1")
    budgets = options.device_budget
    for nbytes in budgets.values() if isinstance(budgets, Mapping) else [budgets or 0]:
        if nbytes < 0:
            raise ValueError(f"device_budget is {nbytes:,}: it must not be negative")
    with staging_with(options):
        yield
