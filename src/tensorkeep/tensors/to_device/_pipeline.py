"""Tensors on a device, filled through host buffers: threads read, and the device copies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from tensorkeep.arrays import DeviceMemory, Move, Target
from tensorkeep.limits import READ_NBYTES
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.to_device._buffers import HostBuffers
from tensorkeep.tensors.to_device._options import StagingOptions, staging_options
from tensorkeep.tensors.to_device._plan import Part, Transfer, plan_tasks
from tensorkeep.transport import reading_alone

Report: TypeAlias = Callable[[int], None]
"""Takes the bytes that were read since the last call."""

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
    """Return the size of a host buffer: a power of two, to which allocators of pinned memory round up."""
    return min(READ_NBYTES, 1 << (options.host_budget // _MIN_BUFFERS).bit_length() - 1)


def buffer_nbytes() -> int:
    """Return the size of a host buffer within this block of options, for a load to one device."""
    return buffer_nbytes_of(staging_options())


def fill_targets(
    device: DeviceMemory,
    targets: Sequence[Target],
    parts: Iterable[Part],
    options: StagingOptions,
    report: Report | None = None,
) -> None:
    """Fill tensors on a device from sources; see `Filling`."""
    begin_filling(device, targets, parts, options).run(report)


def begin_filling(
    device: DeviceMemory, targets: Sequence[Target], parts: Iterable[Part], options: StagingOptions
) -> Filling:
    """Prepare to fill tensors on a device from sources."""
    tasks = plan_tasks(parts, buffer_nbytes_of(options))
    return Filling(device, dict(enumerate(targets)), tasks, options)


class Filling:
    """Fills tensors on a device, in a fixed amount of host memory.

    It is made by the thread whose work on the device comes before; any thread can run it. After an error or an
    interrupt, some tensors are filled and others are not, and no thread writes to them any more.
    """

    def __init__(
        self,
        device: DeviceMemory,
        targets: Mapping[int, Target],
        tasks: Sequence[Sequence[Transfer | Gathered]],
        options: StagingOptions,
    ) -> None:
        buffer_nbytes = buffer_nbytes_of(options)
        n_buffers = min(options.host_budget // buffer_nbytes, sum(map(len, tasks)))
        self._tasks = tasks
        self._n_threads = min(options.n_threads, n_buffers)
        self._buffers = HostBuffers(device, n_buffers, buffer_nbytes)
        self._copies = device.start(targets, buffer_nbytes) if tasks else None
        self._is_over = False
        self._lock = threading.Lock()

    def run(self, report: Report | None) -> None:
        """Fill the tensors, and report bytes as they are read."""
        reporting = threading.Lock()

        def carry_out(task: Sequence[Transfer | Gathered]) -> None:
            for transfer in task:
                if not self._pass_on(transfer):
                    return
                if report is not None:
                    with reporting:
                        report(transfer.nbytes)

        try:
            parallel_for_each(self._tasks, carry_out, n_threads=self._n_threads)
        finally:
            self.end()

    def _pass_on(self, transfer: Transfer | Gathered) -> bool:
        """Read into a buffer, from which the device begins to copy; False if all is over."""
        if self._is_over:
            return False
        buffer = self._buffers.take()
        with reading_alone():
            _read(transfer, buffer.data)
        with self._lock:
            if self._is_over or self._copies is None:
                return False
            mark = self._copies.fill(buffer, transfer.moves)
        self._buffers.give(buffer, mark)
        return True

    def end(self) -> None:
        """Wait for the copies, and start no more, even if a thread is still reading after an interrupt.

        Calling it again completes a call that was interrupted.
        """
        with self._lock:
            self._is_over = True
        if self._copies is not None:
            self._copies.end()
        self._buffers.release()


def _read(transfer: Transfer | Gathered, into: memoryview) -> None:
    if isinstance(transfer, Gathered):
        transfer.read(into[: transfer.nbytes])
    elif transfer.checked is None:
        transfer.source.read_into([(run.offset, into[run.start : run.stop]) for run in transfer.runs])
    else:
        transfer.checked.read_into(into[: transfer.nbytes])
