"""Loads through host buffers, to a device whose copies are late: whatever happens, no buffer is used too early."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorkeep.digests import digest_of
from tensorkeep.dtypes import BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, LimitError, TransportError
from tensorkeep.tensors.to_device import Part, Staged, StagingOptions, fill_targets, load_staged, plan_tasks, staging
from tensorkeep.transport import ByteRange, DigestedRanges, MemorySource, VerifyingSource
from tests.support.tensors.late_device import LateDevice

SIZES = [3_000_000, 40, 0, 2_000, 900_000, *[64] * 500, 1_500_000, 7]
"""Bytes of tensors of U8."""

BUDGETS = [2**20, 3 * 2**20, 20 * 2**20, 2**26]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 20
    while any(thread.name == "tensorkeep-read" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Files:
    """Two files of random bytes, with the tensors in them."""

    def __init__(self) -> None:
        self.data = [np.random.default_rng(number).bytes(sum(SIZES)) for number in range(2)]
        self.sources: list[Any] = [MemorySource(data, name=f"file {n}") for n, data in enumerate(self.data)]
        self.spans: list[ByteRange] = []
        for nbytes in SIZES:
            start = self.spans[-1].stop if self.spans else 0
            self.spans.append(ByteRange(start, start + nbytes))

    def groups(self) -> list[Staged]:
        entries = {
            str(n): TensorEntry("U8", (len(span),), (span.start, span.stop)) for n, span in enumerate(self.spans)
        }
        return [Staged(source, 0, entries) for source in self.sources]

    def is_loaded(self, loaded: list[dict[str, Any]]) -> bool:
        return all(
            loaded[n][str(place)].tobytes() == data[span.start : span.stop]
            for n, data in enumerate(self.data)
            for place, span in enumerate(self.spans)
        )


class Failing(MemorySource):
    """Reads, and then fails."""

    def __init__(self, data: bytes, error: BaseException, n_reads: int) -> None:
        super().__init__(data, name="failing")
        self._error = error
        self._n_left = n_reads
        self._counting = threading.Lock()

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        with self._counting:
            self._n_left -= 1
        if self._n_left < 0:
            raise self._error
        super().read_into(parts)


@pytest.mark.parametrize("host_budget", BUDGETS)
@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_tensors_are_what_the_files_hold_and_host_memory_is_bounded(host_budget: int, n_threads: int) -> None:
    files, device, heard = Files(), LateDevice(), list[int]()

    with staging(host_budget=host_budget, n_threads=n_threads):
        loaded = load_staged([(device, files.groups())], heard.append)[0]

    assert files.is_loaded(loaded)
    assert sum(len(buffer.data) for buffer in device.buffers) <= host_budget
    assert all(len(buffer.data).bit_count() == 1 for buffer in device.buffers)  # pinned memory is rounded up to that
    assert sum(heard) == 2 * sum(SIZES)


@pytest.mark.parametrize("n_reads", [0, 1, 4])
def test_a_read_that_fails_ends_the_load(n_reads: int) -> None:
    files, device = Files(), LateDevice()
    files.sources[1] = Failing(files.data[1], TransportError("the disk is broken"), n_reads)

    with staging(host_budget=2**21, n_threads=4), pytest.raises(TransportError, match="the disk is broken"):
        load_staged([(device, files.groups())])

    assert not device.copies[0].thread.is_alive()


@pytest.mark.parametrize("device", [LateDevice(fails_at=0), LateDevice(fails_at=5)])
def test_a_device_that_fails_ends_the_load(device: LateDevice) -> None:
    with staging(host_budget=2**21, n_threads=4), pytest.raises(RuntimeError, match="the device is lost"):
        load_staged([(device, Files().groups())])

    assert not device.copies[0].thread.is_alive()


def test_too_little_pinned_memory_ends_the_load() -> None:
    device = LateDevice(n_buffers_at_most=1)

    with staging(n_threads=4), pytest.raises(MemoryError):
        load_staged([(device, Files().groups())])

    assert not device.copies[0].thread.is_alive()


def test_nothing_is_written_after_an_interrupt() -> None:
    files, device = Files(), LateDevice()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    groups = files.groups()
    with staging(host_budget=2**20, n_threads=2), pytest.raises(KeyboardInterrupt):
        load_staged([(device, groups)], interrupt)

    n_filled = device.n_filled
    time.sleep(0.05)
    assert device.n_filled == n_filled < sum(map(len, plan_tasks(_parts(groups), 2**19)))


def _parts(groups: list[Staged]) -> list[Part]:
    spans = [(group.source, ByteRange(*entry.data_offsets)) for group in groups for entry in group.entries.values()]
    return [Part(number, source, span, 1) for number, (source, span) in enumerate(spans)]


@pytest.mark.parametrize("place", [0, 1, 4])
def test_damage_is_found_on_the_way(place: int) -> None:
    files = Files()
    spans = {str(n): span for n, span in enumerate(files.spans)}
    digests = {name: digest_of(files.data[0][span.start : span.stop]) for name, span in spans.items()}
    damaged = bytearray(files.data[0])
    checked = VerifyingSource(MemorySource(bytes(damaged), name="file"), partial(DigestedRanges.of, spans, digests))
    groups = [Staged(checked, 0, files.groups()[0].entries)]
    with staging(host_budget=2**20):
        assert len(load_staged([(LateDevice(), groups)])[0][0]) == len(SIZES)

    damaged[files.spans[place].stop - 1] ^= 1
    checked = VerifyingSource(MemorySource(bytes(damaged), name="file"), partial(DigestedRanges.of, spans, digests))
    groups = [Staged(checked, 0, files.groups()[0].entries)]
    with staging(host_budget=2**20), pytest.raises(IntegrityError, match=f"tensor `{place}`"):
        load_staged([(LateDevice(), groups)])


def test_more_than_the_budget_is_refused_before_anything_is_read() -> None:
    files, device = Files(), LateDevice()
    files.sources = [Failing(data, AssertionError("read"), 0) for data in files.data]

    with staging(device_budget=2 * sum(SIZES) - 1), pytest.raises(LimitError, match="device budget"):
        load_staged([(device, files.groups())])
    with pytest.raises(LimitError, match="device's memory"):
        load_staged([(LateDevice(free_nbytes=100), files.groups())])

    assert device.buffers == device.copies == []


def test_existing_tensors_are_filled() -> None:
    data = np.arange(1000, dtype=np.uint8)
    device, into = LateDevice(), np.zeros(1000, np.uint8)
    (target,) = device.allocate([TensorEntry("U8", (1000,), (0, 1000))])
    target = type(target)(into, BY_NAME["U8"])
    part = Part(0, MemorySource(data.tobytes(), name="file"), ByteRange(0, 1000), 1)

    fill_targets(device, [target], [part], StagingOptions())

    assert (into == data).all()


@pytest.mark.parametrize("options", [{"host_budget": 1000}, {"n_threads": 0}, {"device_budget": -1}])
def test_budgets_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))), staging(**options):
        pass
