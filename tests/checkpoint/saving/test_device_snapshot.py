"""Background saves whose snapshot is on the device: with torch's own copies, on the CPU by another name."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch import _device_memory, _fetches, streams
from tensorkeep.checkpoint.saving import _snapshot
from tensorkeep.errors import UnsupportedError
from tests.support.tensors.late_device import CpuStreams


class LateEvent:
    """A point in the work of the device, which it reaches when the test says so."""

    is_reached = threading.Event()

    def synchronize(self) -> None:
        assert self.is_reached.wait(60)


class LateStream(CpuStreams.Stream):
    def record_event(self) -> Any:
        return LateEvent()


class LateStreams(CpuStreams):
    """The device is late; tensors of the CPU that are not as in a file count as being there."""

    Stream = LateStream
    current_stream = LateStream


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    monkeypatch.setitem(streams.STREAMS, "cpu", LateStreams)
    LateEvent.is_reached.clear()
    yield LateEvent.is_reached
    LateEvent.is_reached.set()


def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {"a": torch.randn(300, 200).T, "b": torch.randn(50, 40)[:, ::2], "host": torch.randn(7)}


@pytest.mark.parametrize("target", ["file.safetensors", "directory"])
def test_what_is_saved_is_the_state_at_the_call(tmp_path: Path, device: threading.Event, target: str) -> None:
    values = state()

    handle = tensorkeep.save_async(values, tmp_path / target, snapshot="device")
    for tensor in values.values():
        tensor.zero_()

    assert not handle.done()
    device.set()
    handle.result(60)
    loaded = tensorkeep.load(tmp_path / target)
    assert all(loaded[name].equal(tensor) for name, tensor in state().items())


def test_copies_on_the_device_are_freed_once_they_have_arrived(
    tmp_path: Path, device: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[weakref.ref[torch.UntypedStorage]] = []
    clone, take = torch.Tensor.clone, _snapshot._Memory.take
    left: list[int] = []

    def noted(self: torch.Tensor, **options: Any) -> torch.Tensor:
        copy = clone(self, **options)
        copies.append(weakref.ref(copy.untyped_storage()))
        return copy

    def n_left() -> int:
        gc.collect()
        return sum(copy() is not None for copy in copies)

    def counted(self: Any, parts: Any, data: memoryview) -> None:
        left.append(n_left())
        take(self, parts, data)

    monkeypatch.setattr(torch.Tensor, "clone", noted)
    monkeypatch.setattr(_snapshot._Memory, "take", counted)
    values = {f"{n}": torch.randn(700, 400).T for n in range(4)}
    with tensorkeep.staging(n_threads=1):
        handle = tensorkeep.save_async(values, tmp_path / "x.safetensors", snapshot="device")
    assert n_left() == 4
    device.set()
    handle.result(60)
    assert left == [4, 3, 2, 1]
    assert n_left() == 0


def test_small_copies_on_the_device_are_moved_together_in_the_budget_of_the_call(
    tmp_path: Path, device: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    made = _device_memory.TorchDeviceMemory.host_buffer

    def host_buffer(self: Any, nbytes: int) -> Any:
        sizes.append(nbytes)
        return made(self, nbytes)

    monkeypatch.setattr(_device_memory.TorchDeviceMemory, "host_buffer", host_buffer)
    values = {f"{n}": torch.randn(n % 9 + 2, 50).T for n in range(2000)}
    expected = {name: tensor.clone() for name, tensor in values.items()}
    with tensorkeep.staging(host_budget=2**20):
        handle = tensorkeep.save_async(values, tmp_path / "x.safetensors", snapshot="device")
    for tensor in values.values():
        tensor.zero_()
    device.set()
    handle.result(60)
    assert sizes == [2**19] * 2
    loaded = tensorkeep.load(tmp_path / "x.safetensors")
    assert all(loaded[name].equal(tensor) for name, tensor in expected.items())


def test_a_failure_on_the_way_from_the_device_is_raised_and_frees_the_copies(
    tmp_path: Path, device: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.set()
    tensorkeep.save(state(), tmp_path / "x.safetensors")
    before = (tmp_path / "x.safetensors").read_bytes()
    storages: list[weakref.ref[torch.UntypedStorage]] = []
    clone = torch.Tensor.clone

    def noted(self: torch.Tensor, **options: Any) -> torch.Tensor:
        copy = clone(self, **options)
        storages.append(weakref.ref(copy.untyped_storage()))
        return copy

    def lost(*_: Any) -> Any:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(torch.Tensor, "clone", noted)
    monkeypatch.setattr(_fetches.TorchFetches, "fetch", lost)
    handle = tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device")
    with pytest.raises(RuntimeError, match="the device is lost"):
        handle.result(60)
    gc.collect()
    assert storages
    assert not any(storage() is not None for storage in storages)
    assert (tmp_path / "x.safetensors").read_bytes() == before


def test_a_device_without_room_is_copied_to_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("the device is full")

    monkeypatch.setattr(torch.Tensor, "clone", full)
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)

    tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device").result(60)

    assert tensorkeep.load(tmp_path / "x.safetensors")["a"].equal(state()["a"])


def test_a_lost_device_keeps_no_memory_of_the_host(
    tmp_path: Path, device: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> Any:
        raise RuntimeError("the device is lost")

    device.set()
    tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device").result(60)
    n_free = len(_snapshot._blocks._free)
    monkeypatch.setattr(_fetches.TorchFetches, "fetch", lost)
    monkeypatch.setattr(_fetches.TorchFetches, "end", lost)
    handle = tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device")
    with pytest.raises(RuntimeError, match="the device is lost"):
        handle.result(60)
    assert len(_snapshot._blocks._free) == n_free > 0


def test_copies_on_the_device_stay_within_its_budget(
    tmp_path: Path, device: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    clone = torch.Tensor.clone

    def noted(self: torch.Tensor, **options: Any) -> torch.Tensor:
        sizes.append(self.nbytes)
        return clone(self, **options)

    monkeypatch.setattr(torch.Tensor, "clone", noted)
    device.set()
    with tensorkeep.staging(device_budget={"cpu": 10_000}):
        tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device").result(60)

    assert sizes == [50 * 20 * 4]  # not the larger one
    loaded = tensorkeep.load(tmp_path / "x.safetensors")
    assert all(loaded[name].equal(tensor) for name, tensor in state().items())


def test_large_tensors_of_a_device_are_copied_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    values = {f"{n}": torch.randn(1500 + n, 1000).T for n in range(3)}  # several buffers of each
    expected = {name: tensor.clone() for name, tensor in values.items()}
    threads: set[threading.Thread] = set()
    are_two = threading.Event()
    fill = _snapshot._Memory.fill

    def together(self: Any, start: int, buffers: Any) -> None:
        threads.add(threading.current_thread())
        if len(threads) == 2:
            are_two.set()
        assert are_two.wait(60)
        fill(self, start, buffers)

    monkeypatch.setattr(_snapshot._Memory, "fill", together)
    with tensorkeep.staging(n_threads=2):
        handle = tensorkeep.save_async(values, tmp_path / "x.safetensors", snapshot="host")
    for tensor in values.values():
        tensor.zero_()
    handle.result(60)

    loaded = tensorkeep.load(tmp_path / "x.safetensors")
    assert all(loaded[name].equal(tensor) for name, tensor in expected.items())


def test_a_save_may_begin_in_inference_mode(tmp_path: Path, device: threading.Event) -> None:
    """Outside of it, torch refuses to write to tensors that were made in it."""
    device.set()

    with torch.inference_mode():
        handle = tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device")
    handle.result(60)

    loaded = tensorkeep.load(tmp_path / "x.safetensors")
    assert all(loaded[name].equal(tensor) for name, tensor in state().items())


def test_other_places_are_refused(tmp_path: Path) -> None:
    wrong: Any = "disk"
    with pytest.raises(UnsupportedError, match="snapshot"):
        tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot=wrong)
