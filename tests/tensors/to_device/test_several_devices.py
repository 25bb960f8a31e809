"""Loads to several devices: who gets what, in which memory, and what remains after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch._dense import TorchArrays
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DeviceError, LimitError, TransportError, UnsupportedError
from tensorkeep.tensors.to_device import Staged, devices_of, load_staged, staging
from tensorkeep.transport import MemorySource
from tests.support.tensors.late_device import LateDevice


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 20
    while any(thread.name == "tensorkeep-read" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def group(source: Any, sizes: Iterable[int]) -> Staged:
    entries: dict[str, TensorEntry] = {}
    end = 0
    for number, nbytes in enumerate(sizes):
        entries[str(number)] = TensorEntry("U8", (nbytes,), (end, end + nbytes))
        end += nbytes
    return Staged(source, 0, entries)


class Failing(MemorySource):
    """Cannot be read."""

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        raise TransportError("the disk is broken")


SIZES = [3_000_000, 40, 0, 2_000, 900_000, *[65] * 500, 7]
DATA = np.random.default_rng(5).bytes(sum(SIZES))


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("host_budget", [2**20, 2**23, 2**26])
def test_all_devices_get_their_tensors_within_one_budget(host_budget: int, own: bool) -> None:
    devices = [LateDevice(f"late:{n}") for n in range(3)]
    heard: list[int] = []

    with staging(host_budget=host_budget, n_threads=4, own=own):
        loads = [(device, [group(MemorySource(DATA), SIZES)]) for device in devices]
        loaded = load_staged(loads, heard.append)

    assert all(b"".join(tensor.tobytes() for tensor in one.values()) == DATA for (one,) in loaded)
    assert sum(heard) == 3 * len(DATA)
    if host_budget > 2**20:  # otherwise the devices take turns, and each keeps its buffers until the end
        assert sum(len(buffer.data) for device in devices for buffer in device.buffers) <= host_budget


def test_small_tensors_are_parts_of_few_allocations() -> None:
    device = LateDevice()

    with staging(own=False):
        ((loaded,),) = load_staged([(device, [group(MemorySource(DATA), SIZES)])])

    assert device.n_allocated <= 5
    bases = {id(tensor.base) for tensor in loaded.values() if tensor.base is not None}
    assert len(bases) < 3
    assert loaded["0"].base is None  # a large one has its own


def test_a_failure_on_one_device_ends_the_loads_of_all() -> None:
    devices = [LateDevice("late:0"), LateDevice("late:1")]
    sizes = [4_000_000] * 20
    other = MemorySource(bytes(sum(sizes)))

    with staging(host_budget=2**21, n_threads=4), pytest.raises(TransportError, match="broken"):
        load_staged([(devices[0], [group(other, sizes)]), (devices[1], [group(Failing(DATA), SIZES)])])

    assert devices[0].n_filled < 80
    assert not any(copies.thread.is_alive() for device in devices for copies in device.copies)


def test_what_does_not_fit_on_one_device_is_refused_before_anything_is_read() -> None:
    groups = [group(Failing(DATA), SIZES)]
    devices = [LateDevice("cuda:0"), LateDevice("cuda:1", free_nbytes=100)]
    with pytest.raises(LimitError, match=r"device's memory \(cuda:1\)"):
        load_staged([(device, groups) for device in devices])
    for budgets in ({1: 100}, {"cuda:1": 100, "cuda": 10**9}, {"cuda": 100}):
        with staging(device_budget=budgets), pytest.raises(LimitError, match="device budget"):
            load_staged([(LateDevice(f"cuda:{n}"), groups) for n in range(2)])


def test_the_longest_name_decides() -> None:
    names = ["layers.1.weight", "layers.1.bias", "layers.10.weight", "head"]

    devices = devices_of(names, {"layers.1": 0, "layers.1.bias": "cpu", "": 1, "unused": 7})

    assert devices == {"layers.1.weight": 0, "layers.1.bias": "cpu", "layers.10.weight": 1, "head": 1}


@pytest.mark.parametrize(
    ("device_map", "error", "message"),
    [
        ({"layers.1": 0}, DeviceError, "no device for 2 of the tensors"),
        ({"": "disk"}, DeviceError, "leaves all others on disk"),
        ({"layers.1": 0, "head": "disk", "": 1}, DeviceError, "leaves `head` on disk"),
        ("auto", TypeError, "infer_auto_device_map"),
        ({1: 0}, TypeError, "must be a dict"),
    ],
)
def test_maps_with_holes_or_without_sense_are_refused(device_map: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        devices_of(["layers.1.a", "layers.10.a", "head"], device_map)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> dict[str, LateDevice]:
    """Devices of torch by name; their tensors are NumPy's."""
    devices: dict[str, LateDevice] = {}

    def device_memory(arrays: Any) -> LateDevice:
        return devices.setdefault(arrays._device, LateDevice(arrays._device))

    monkeypatch.setattr(TorchArrays, "device_memory", device_memory)
    return devices


@pytest.mark.parametrize("form", ["file", "checkpoint", "pickle"])
def test_checkpoints_are_spread_over_devices(tmp_path: Path, late: dict[str, LateDevice], form: str) -> None:
    torch.manual_seed(0)
    state = {f"layers.{n}.weight": torch.randn(600, 1000) for n in range(3)} | {"head": torch.randn(4)}
    path = tmp_path / form
    if form == "pickle":
        torch.save(state, path)
    elif form == "file":
        tensorkeep.torch.save_file(state, path)
    else:
        tensorkeep.save_checkpoint(state, path, max_shard_size="3MB")
    device_map = {"layers": "late:1", "layers.0": "late:0", "": "cpu"}

    loaded = tensorkeep.load(path, device_map=device_map)

    assert loaded.keys() == state.keys()
    assert isinstance(loaded["head"], torch.Tensor)
    assert late["late:0"].n_allocated == 1
    assert late["late:1"].n_allocated == 2
    assert all(np.asarray(loaded[name]).tobytes() == tensor.numpy().tobytes() for name, tensor in state.items())


def test_files_are_spread_over_devices_too(tmp_path: Path, late: dict[str, LateDevice]) -> None:
    state = {"a.weight": torch.randn(600, 1000), "b.weight": torch.randn(600, 1000)}
    tensorkeep.torch.save_file(state, tmp_path / "x.safetensors")

    loaded = tensorkeep.torch.load_file(tmp_path / "x.safetensors", device_map={"a": "late:0", "b": "late:1"})

    assert sorted(late) == ["late:0", "late:1"]
    assert all(np.asarray(loaded[name]).tobytes() == tensor.numpy().tobytes() for name, tensor in state.items())


def test_tied_tensors_stay_tied_on_one_device(tmp_path: Path) -> None:
    weight = torch.randn(10, 10)
    tensorkeep.save({"a": weight, "b": weight, "c": weight.clone()}, tmp_path / "tied.safetensors")

    loaded = tensorkeep.load(tmp_path / "tied.safetensors", device_map={"": "cpu"})

    assert loaded["a"].data_ptr() == loaded["b"].data_ptr() != loaded["c"].data_ptr()
    with pytest.raises(UnsupportedError, match="device map"):
        tensorkeep.load(tmp_path / "tied.safetensors", device_map={"": "cpu"}, device="meta")


def test_a_model_is_spread_over_devices(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        tied = torch.nn.ModuleDict({"a": model, "b": model[0]})
    saved = torch.nn.ModuleDict({"a": torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))})
    path = tmp_path / "model.safetensors"
    tensorkeep.torch.save_file(saved.state_dict(), path)

    with pytest.raises(DeviceError, match="no device for 5 of the tensors"):
        tensorkeep.torch.load_into(tied, path, device_map={"a.0": "cpu"}, assign=True)
    tensorkeep.torch.load_into(tied, path, device_map={"a.0": "cpu", "": "cpu"}, assign=True)

    assert tied["b"].weight is model[0].weight
    assert model[0].weight.equal(saved["a"][0].weight)


def test_nothing_is_written_after_an_interrupt() -> None:
    devices = [LateDevice("late:0"), LateDevice("late:1")]
    sizes = [2_000_000] * 20
    source = MemorySource(bytes(sum(sizes)))

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with staging(host_budget=2**21, n_threads=4), pytest.raises(KeyboardInterrupt):
        load_staged([(device, [group(source, sizes)]) for device in devices], interrupt)

    while any(thread.name == "tensorkeep-read" for thread in threading.enumerate()):
        time.sleep(0.01)
    n_filled = [device.n_filled for device in devices]
    time.sleep(0.05)
    assert [device.n_filled for device in devices] == n_filled
    assert sum(n_filled) < 40
    assert not any(copies.thread.is_alive() for device in devices for copies in device.copies)


@pytest.mark.parametrize("fault", [{"fails_at": 3}, {"n_buffers_at_most": 1}])
def test_a_device_that_fails_ends_the_loads_of_all(fault: dict[str, int]) -> None:
    devices = [LateDevice("late:0"), LateDevice("late:1", **fault)]
    sizes = [4_000_000] * 20
    source = MemorySource(bytes(sum(sizes)))

    with staging(host_budget=2**22, n_threads=4), pytest.raises((RuntimeError, MemoryError)):
        load_staged([(device, [group(source, sizes)]) for device in devices])

    assert devices[0].n_filled < 80
    assert not any(copies.thread.is_alive() for device in devices for copies in device.copies)


def test_memory_is_allocated_in_the_order_of_the_callers_work() -> None:
    """The memory of a tensor may be in use by what the caller's thread has begun on the device, and no other's."""
    devices = [LateDevice(f"late:{n}") for n in range(3)]

    load_staged([(device, [group(MemorySource(DATA), SIZES)]) for device in devices])

    assert all(device.threads == {threading.current_thread()} for device in devices)


def test_a_device_that_is_full_ends_what_was_begun() -> None:
    devices = [LateDevice("late:0"), LateDevice("late:1", n_tensors_at_most=3)]

    with pytest.raises(LimitError, match="device's memory"):
        load_staged([(device, [group(Failing(DATA), SIZES)]) for device in devices])

    assert len(devices[0].copies) == 1
    assert not devices[0].copies[0].thread.is_alive()
    assert not devices[0].buffers
