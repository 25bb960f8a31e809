"""Tensors on a device, filled through host buffers: threads read, and the device copies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tensorkeep.arrays import DeviceCopies, DeviceMemory, HostBuffer, Mark, Move, Target
from tensorkeep.limits import READ_NBYTES
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.to_device._buffers import HostBuffers
from tensorkeep.tensors.to_device._options import StagingOptions
from tensorkeep.tensors.to_device._plan import ALIGNMENT, Part, Transfer, plan_tasks

_MIN_BUFFERS: Final = 2
"""Buffers that fit in any budget: one to read into while the device copies from another."""


class Gathered(msgspec.Struct, frozen=True, eq=False):
    """What passes through one buffer after it was gathered there.

    Attributes:
        read: Fills as much memory as it is given.
        nbytes: Bytes of tensors.
        moves: Which tensors the bytes belong to.
    """

    read: Callable[[memoryview], None]
    nbytes: int
    moves: tuple[Move, ...]


def buffer_nbytes_of(options: StagingOptions) -> int:
    """Return the size of a host buffer, a multiple of 64 bytes."""
    return min(READ_NBYTES, options.host_budget // _MIN_BUFFERS // ALIGNMENT * ALIGNMENT)


def fill_targets(
    device: DeviceMemory,
    targets: Sequence[Target],
    parts: Iterable[Part],
    options: StagingOptions,
    report: Callable[[int], None] | None = None,
) -> None:
    """Fill tensors on a device from sources; see `carry_out`."""
    buffer_nbytes = buffer_nbytes_of(options)
    carry_out(device, dict(enumerate(targets)), plan_tasks(parts, buffer_nbytes), buffer_nbytes, options, report)


def carry_out(
    device: DeviceMemory,
    targets: Mapping[int, Target],
    tasks: Sequence[Sequence[Transfer | Gathered]],
    buffer_nbytes: int,
    options: StagingOptions,
    report: Callable[[int], None] | None = None,
) -> None:
    """Fill tensors on a device, in a fixed amount of host memory, and report bytes as they are read.

    After an error or an interrupt, some are filled and others are not, and no thread writes to them any more.
    """
    if not tasks:
        return
    n_buffers = min(options.host_budget // buffer_nbytes, sum(map(len, tasks)))
    copies = device.start(targets, buffer_nbytes)
    load = _Load(copies, HostBuffers(device, n_buffers, buffer_nbytes), report)
    try:
        parallel_for_each(tasks, load.carry_out, n_threads=min(options.n_threads, n_buffers))
    finally:
        load.stop()
        copies.end()


class _Load:
    """What the threads of one load share."""

    def __init__(self, copies: DeviceCopies, buffers: HostBuffers, report: Callable[[int], None] | None) -> None:
        self._copies = copies
        self._buffers = buffers
        self._report = report
        self._reporting = threading.Lock()
        self._is_over = False
        self._lock = threading.Lock()

    def carry_out(self, task: Sequence[Transfer | Gathered]) -> None:
        """Make the transfers of a task, in order."""
        for transfer in task:
            buffer = self._buffers.take()
            _read(transfer, buffer.data)
            mark = self._fill(buffer, transfer)
            if mark is None:
                return
            self._buffers.give(buffer, mark)
            if self._report is not None:
                with self._reporting:
                    self._report(transfer.nbytes)

    def _fill(self, buffer: HostBuffer, transfer: Transfer | Gathered) -> Mark | None:
        """Let the device copy from a buffer; None if the load is over."""
        with self._lock:
            return None if self._is_over else self._copies.fill(buffer, transfer.moves)

    def stop(self) -> None:
        """Start no more copies, even if a thread is still reading when the load is interrupted."""
        with self._lock:
            self._is_over = True


def _read(transfer: Transfer | Gathered, into: memoryview) -> None:
    if isinstance(transfer, Gathered):
        transfer.read(into[: transfer.nbytes])
    elif transfer.checked is None:
        transfer.source.read_into([(run.offset, into[run.start : run.stop]) for run in transfer.runs])
    else:
        transfer.checked.read_into(into[: transfer.nbytes])
