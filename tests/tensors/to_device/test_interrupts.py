"""Loads to devices that a signal interrupts at any moment."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from tensorkeep.entries import TensorEntry
from tensorkeep.tensors.to_device import Staged, load_staged, staging
from tensorkeep.transport import MemorySource
from tests.support.soak import rounds
from tests.support.tensors.late_device import LateDevice

SIZES = [700_000, *[300] * 200, 900_000]
DATA = random.Random(1).randbytes(sum(SIZES))


class Interrupt(BaseException):
    """What a signal raises, wherever the main thread is."""


@pytest.fixture
def signals() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def group() -> Staged:
    entries: dict[str, TensorEntry] = {}
    start = 0
    for number, nbytes in enumerate(SIZES):
        entries[str(number)] = TensorEntry("U8", (nbytes,), (start, start + nbytes))
        start += nbytes
    return Staged(MemorySource(DATA, name="file"), 0, entries)


def load(devices: list[LateDevice]) -> list[list[dict[str, Any]]]:
    with staging(host_budget=2**21, n_threads=3):
        return load_staged([(device, [group()]) for device in devices])


def test_a_signal_at_any_moment_ends_all_copies(signals: None) -> None:
    moments = random.Random(2)
    n_rounds, n_complete = rounds(40, 2000), 0
    for _ in range(n_rounds):
        devices = [LateDevice(f"late:{n}") for n in range(moments.choice([1, 2]))]
        timer = threading.Timer(moments.random() * 0.03, os.kill, (os.getpid(), signal.SIGUSR1))
        with suppress(Interrupt):
            timer.start()
            load(devices)
            n_complete += 1
            timer.join()
            time.sleep(0.02)
        n_filled = [device.n_filled for device in devices]
        assert not any(device.is_copying for device in devices)
        time.sleep(0.003)
        assert [device.n_filled for device in devices] == n_filled

    assert n_complete < n_rounds
    wait_for_threads()


def wait_for_threads() -> None:
    deadline = time.monotonic() + 20
    while any(thread.name == "tensorkeep-read" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
