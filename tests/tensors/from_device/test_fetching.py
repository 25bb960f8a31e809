"""Saves through host buffers, from a device whose copies are late: no buffer is used too early, whatever happens."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import FrameType

import pytest

from tensorkeep.arrays import Fetched
from tensorkeep.buffers import Buffer
from tensorkeep.tensors.from_device import fetch_each, fetch_in_order
from tensorkeep.tensors.from_device._plan import plan_fetches
from tensorkeep.tensors.to_device import staging
from tests.support.soak import rounds
from tests.support.tensors.late_device import LateDevice

SIZES = [3_000_000, 40, 2_000, 900_000, *[64] * 500, 1_500_000, 7]
CONTENT = [random.Random(n).randbytes(nbytes) for n, nbytes in enumerate(SIZES)]


class Interrupt(BaseException):
    """What a signal raises, wherever the main thread is."""


class Memory:
    """What was taken, and by which threads."""

    def __init__(self) -> None:
        self.parts: dict[int, list[bytes]] = {n: [] for n in range(len(SIZES))}
        self.threads: set[threading.Thread] = set()
        self.n_taken = 0

    def take(self, parts: Sequence[Fetched], data: memoryview) -> None:
        self.threads.add(threading.current_thread())
        for each in parts:
            assert each.offset == sum(map(len, self.parts[each.tensor])), "out of order"
            self.parts[each.tensor].append(bytes(data[each.start : each.stop]))
            self.n_taken += 1

    def is_complete(self) -> bool:
        return [b"".join(self.parts[n]) for n in range(len(SIZES))] == CONTENT


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 20
    while any(thread.name == "tensorkeep-read" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fetch(devices: Sequence[LateDevice], memory: Memory) -> None:
    fetch_each(
        ((n, len(data), devices[n % len(devices)].holding(data, f"order {n % 3}")) for n, data in enumerate(CONTENT)),
        memory.take,
    )


@pytest.mark.parametrize("host_budget", [2**20, 3 * 2**20, 2**26])
@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_tensors_arrive_in_the_budget(host_budget: int, n_threads: int) -> None:
    device, memory = LateDevice(), Memory()

    with staging(host_budget=host_budget, n_threads=n_threads):
        fetch([device], memory)

    assert memory.is_complete()
    assert sum(len(buffer.data) for buffer in device.buffers) <= host_budget
    assert len(memory.threads) <= n_threads
    assert set(device.orders) == {"order 0", "order 1", "order 2"}
    assert not device.is_copying


def test_each_device_is_copied_from() -> None:
    devices, memory = [LateDevice("late:0"), LateDevice("late:1")], Memory()
    fetch(devices, memory)
    assert memory.is_complete()
    assert all(device.n_filled for device in devices)


def test_small_tensors_are_copied_together() -> None:
    device = LateDevice()
    tasks = list(plan_fetches(((n, 2_000, device.holding(bytes(2_000))) for n in range(1000)), 2**20))
    assert [len(task) for task in tasks] == [1, 1]
    assert [len(task[0]) for task in tasks] == [524, 476]
    assert all(each.stop - each.start == 2_000 for task in tasks for each in task[0])


@pytest.mark.parametrize("fails_at", [0, 1, 5])
def test_a_device_that_fails_ends_all(fails_at: int) -> None:
    device, memory = LateDevice(fails_at=fails_at), Memory()
    with staging(host_budget=2**20, n_threads=4), pytest.raises(RuntimeError, match="the device is lost"):
        fetch([device], memory)
    assert not device.is_copying
    assert not memory.is_complete()


def test_pinned_memory_that_is_exhausted_ends_all() -> None:
    device = LateDevice(n_buffers_at_most=1)
    with staging(host_budget=2**21, n_threads=4), pytest.raises(MemoryError, match="no pinned memory"):
        fetch([device], Memory())
    assert not device.is_copying


@pytest.mark.parametrize("n_threads", [1, 4])
def test_a_failure_of_the_taker_ends_all(n_threads: int) -> None:
    device, memory = LateDevice(), Memory()

    def take(parts: Sequence[Fetched], data: memoryview) -> None:
        if memory.n_taken > 2:
            raise OSError("the disk is full")
        memory.take(parts, data)

    with staging(host_budget=2**20, n_threads=n_threads), pytest.raises(OSError, match="the disk is full"):
        fetch_each(((n, len(data), device.holding(data)) for n, data in enumerate(CONTENT)), take)
    assert not device.is_copying
    taken = memory.n_taken
    time.sleep(0.01)
    assert memory.n_taken == taken


def test_after_a_signal_at_any_moment_nothing_is_taken() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    moments = random.Random(2)
    n_rounds, n_complete = rounds(40, 2000), 0
    try:
        for _ in range(n_rounds):
            device, memory = LateDevice(), Memory()
            timer = threading.Timer(moments.random() * 0.03, os.kill, (os.getpid(), signal.SIGUSR1))
            with suppress(Interrupt), staging(host_budget=2**21, n_threads=3):
                timer.start()
                fetch([device], memory)
                n_complete += 1
                timer.join()
                time.sleep(0.02)
            assert not device.is_copying
            taken = memory.n_taken
            time.sleep(0.003)
            assert memory.n_taken == taken
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert n_complete < n_rounds


def in_order(devices: Sequence[LateDevice]) -> Iterator[Iterator[Buffer]]:
    held = (devices[n // 4 % len(devices)].holding(data, f"order {n % 3}") for n, data in enumerate(CONTENT))
    return fetch_in_order((n, len(data), tensor) for n, (data, tensor) in enumerate(zip(CONTENT, held, strict=True)))


@pytest.mark.parametrize("n_devices", [1, 2])
def test_bytes_in_order_stay_as_they_are_while_they_are_held(n_devices: int) -> None:
    devices = [LateDevice(f"late:{n}") for n in range(n_devices)]

    held = [list(buffers) for buffers in in_order(devices)]

    assert [b"".join(buffers) for buffers in held] == CONTENT
    assert not any(device.is_copying for device in devices)
    assert all(set(device.orders) == {"order 0", "order 1", "order 2"} for device in devices)


def test_small_tensors_in_order_are_copied_together_and_few_buffers_ahead() -> None:
    device = LateDevice()
    tensors = [(n, 2_000, device.holding(bytes([n % 256]) * 2_000)) for n in range(10_000)]
    n_filled = []

    for n, buffers in enumerate(fetch_in_order(tensors)):
        assert b"".join(buffers) == bytes([n % 256]) * 2_000
        n_filled.append(device.n_filled)

    assert n_filled[0] == 4
    assert n_filled[-1] == 5


def test_a_device_that_fails_ends_the_copies_in_order() -> None:
    device = LateDevice(fails_at=1)
    with pytest.raises(RuntimeError, match="the device is lost"):
        deque(map(list, in_order([device])), maxlen=0)
    assert not device.is_copying


def test_a_reader_that_stops_early_ends_the_copies_in_order() -> None:
    device = LateDevice()
    buffers = in_order([device])
    next(next(buffers))
    assert device.is_copying
    del buffers
    gc.collect()
    assert not device.is_copying
