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
from tensorkeep.arrays.torch import streams
from tensorkeep.checkpoint.saving import _snapshot
from tensorkeep.errors import UnsupportedError
from tests.support.tensors.late_device import CpuStreams


class LateEvent:
    """A point in the work of the device, which it reaches when the test says so."""

    is_reached = threading.Event()

    def synchronize(self) -> None:
        assert self.is_reached.wait(60)


class LateStream:
    def record_event(self) -> LateEvent:
        return LateEvent()


class LateStreams(CpuStreams):
    """The device is late; tensors of the CPU that are not as in a file count as being there."""

    @staticmethod
    def current_stream(_: Any) -> Any:
        return LateStream()


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


def test_copies_on_the_device_are_freed_one_by_one(
    tmp_path: Path, device: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[weakref.ref[torch.Tensor]] = []
    clone = torch.Tensor.clone

    def noted(self: torch.Tensor, **options: Any) -> torch.Tensor:
        copies.append(weakref.ref(copy := clone(self, **options)))
        return copy

    monkeypatch.setattr(torch.Tensor, "clone", noted)
    handle = tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device")
    assert len(copies) == 2
    device.set()
    handle.result(60)
    gc.collect()
    assert not any(copy() is not None for copy in copies)


def test_a_device_without_room_is_copied_to_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("the device is full")

    monkeypatch.setattr(torch.Tensor, "clone", full)
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)

    tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot="device").result(60)

    assert tensorkeep.load(tmp_path / "x.safetensors")["a"].equal(state()["a"])


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


def test_other_places_are_refused(tmp_path: Path) -> None:
    wrong: Any = "disk"
    with pytest.raises(UnsupportedError, match="snapshot"):
        tensorkeep.save_async(state(), tmp_path / "x.safetensors", snapshot=wrong)
