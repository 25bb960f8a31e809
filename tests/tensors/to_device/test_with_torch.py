"""Loads through host buffers with torch's own copies, on a device that this machine has: the CPU, by another name."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays import Target, adapter_for, has_device_memory
from tensorkeep.arrays.torch import _device_memory, streams, to_host
from tensorkeep.arrays.torch._device_memory import TorchDeviceMemory
from tensorkeep.arrays.torch.streams import current_stream
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import IntegrityError, LimitError, TransportError
from tensorkeep.models import PartJob, _replace, fill_parts, load_sharded
from tensorkeep.models.filling import _parts
from tensorkeep.tensors import Region
from tensorkeep.tensors.to_device import Part, StagingOptions, fill_targets
from tensorkeep.transport import ByteRange, MemorySource
from tests.support.tensors.late_device import CpuStreams

DEVICE = "cpu:0"
"""The CPU, not as the host's memory but as a device to which tensors are copied."""


@pytest.fixture(autouse=True)
def copies_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of moves of all transfers."""
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    calls: list[int] = []
    fill = _device_memory.TorchCopies.fill

    def noted(self: Any, buffer: Any, moves: Any) -> Any:
        calls.append(len(moves))
        return fill(self, buffer, moves)

    monkeypatch.setattr(_device_memory.TorchCopies, "fill", noted)
    return calls


def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    large = {f"layers.{n}.weight": torch.randn(400, 1000).bfloat16() for n in range(4)}
    small = {f"layers.{n}.bias": torch.randn(n % 13, 3).to(torch.float16) for n in range(200)}
    odd = {
        "byte": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "number": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.empty(0, 5),
        "flag": torch.tensor([True, False]),
        "complex": torch.randn(5, dtype=torch.complex64),
        "f8": torch.randn(7).to(torch.float8_e4m3fn),
    }
    return large | small | odd


def equal(loaded: dict[str, torch.Tensor], saved: dict[str, torch.Tensor]) -> bool:
    return loaded.keys() == saved.keys() and all(
        loaded[name].dtype == tensor.dtype
        and loaded[name].shape == tensor.shape
        and loaded[name].contiguous().view(-1).view(torch.uint8).equal(tensor.contiguous().view(-1).view(torch.uint8))
        for name, tensor in saved.items()
    )


def files(folder: Path) -> dict[str, Path]:
    paths = {name: folder / name for name in ("one.safetensors", "sharded", "pickle.pt")}
    tensorkeep.torch.save_file(state(), paths["one.safetensors"])
    tensorkeep.save_checkpoint(state(), paths["sharded"], max_shard_size="1MB")
    torch.save(state(), paths["pickle.pt"])
    return paths


@pytest.mark.parametrize("host_budget", [2**20, 2**26])
def test_all_kinds_of_files_are_loaded_as_they_were_saved(
    tmp_path: Path, host_budget: int, copies_to_the_cpu: list[int]
) -> None:
    for path in files(tmp_path).values():
        copies_to_the_cpu.clear()
        with staging_of(host_budget):
            loaded = tensorkeep.load(path, framework="torch", device=DEVICE)
        assert equal(loaded, state()), path
        assert sum(copies_to_the_cpu) >= sum(tensor.numel() > 0 for tensor in state().values()), path


def staging_of(host_budget: int) -> Any:
    return tensorkeep.staging(host_budget=host_budget, n_threads=3)


def test_no_more_threads_read_than_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = {f"{n:04}": torch.full((1024,), n, dtype=torch.float32) for n in range(6000)}
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")
    wanted = list(saved)[::2]  # many runs of bytes in each transfer
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    for n_threads in (1, 2):
        started.clear()
        with tensorkeep.staging(n_threads=n_threads):
            loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device=DEVICE, only=wanted)
        assert len(started) < n_threads  # the caller reads too
        assert equal(loaded, {name: saved[name] for name in wanted})


def test_tensors_own_their_memory(tmp_path: Path) -> None:
    path = files(tmp_path)["one.safetensors"]

    loaded = tensorkeep.load(path, framework="torch", device=DEVICE)

    n_bytes = {name: tensor.untyped_storage().nbytes() for name, tensor in loaded.items()}
    assert n_bytes == {name: tensor.nbytes for name, tensor in loaded.items()}
    loaded["layers.1.bias"].add_(1)
    assert equal({"layers.2.bias": loaded["layers.2.bias"]}, {"layers.2.bias": state()["layers.2.bias"]})


def test_shards_are_loaded_in_one_go_and_progress_is_told(tmp_path: Path, copies_to_the_cpu: list[int]) -> None:
    path = files(tmp_path)["sharded"]
    heard: list[tuple[int, int]] = []

    loaded = tensorkeep.load(path, framework="torch", device=DEVICE, progress=lambda *so_far: heard.append(so_far))

    total = sum(tensor.nbytes for tensor in state().values())
    assert equal(loaded, state())
    assert heard[-1] == (total, total)
    assert len(copies_to_the_cpu) < 20


def test_digests_are_checked_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "checked.safetensors"
    tensorkeep.save(state(), path)
    assert equal(tensorkeep.load(path, framework="torch", device=DEVICE, verify=True), state())
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(IntegrityError, match="not those that were saved"):
        tensorkeep.load(path, framework="torch", device=DEVICE, verify=True)


def test_a_cast_is_made_on_the_device(tmp_path: Path) -> None:
    path = files(tmp_path)["one.safetensors"]

    with tensorkeep.open(path, framework="torch", device=DEVICE) as opened:
        loaded = opened.select("layers.*.weight").cast("f32").load()

    assert equal(loaded, {name: state()[name].float() for name in loaded})
    assert len(loaded) == 4


def test_existing_tensors_of_another_dtype_are_converted_by_the_device() -> None:
    saved = [torch.randn(300, 1000).bfloat16(), torch.randn(9).bfloat16(), torch.arange(5)]
    into = [torch.zeros(300, 1000), torch.nn.Parameter(torch.zeros(9)), torch.zeros(5, dtype=torch.int64)]
    sources = [MemorySource(tensor.view(torch.uint8).numpy().tobytes(), name="file") for tensor in saved]
    stored = [BY_NAME["BF16"], BY_NAME["BF16"], BY_NAME["I64"]]
    targets = [Target(tensor, dtype) for tensor, dtype in zip(into, stored, strict=True)]
    parts = [Part(n, source, ByteRange(0, source.nbytes), stored[n].itemsize) for n, source in enumerate(sources)]
    device = adapter_for("torch", DEVICE)
    assert has_device_memory(device)

    fill_targets(device.device_memory(), targets, parts, StagingOptions(host_budget=2**20))

    assert all(tensor.equal(values.to(tensor.dtype)) for tensor, values in zip(into, saved, strict=True))


def test_too_small_a_budget_is_refused(tmp_path: Path) -> None:
    path = files(tmp_path)["one.safetensors"]

    with tensorkeep.staging(device_budget=1_000_000), pytest.raises(LimitError, match="device budget"):
        tensorkeep.load(path, framework="torch", device=DEVICE)


def test_a_model_that_does_not_fit_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_replace, "device_memory_of", lambda _: TorchDeviceMemory(torch.device("cpu")))
    saved = torch.nn.Linear(100, 100)
    tensorkeep.torch.save_file(saved.state_dict(), tmp_path / "x.safetensors")
    with torch.device("meta"):
        model = torch.nn.Linear(100, 100)
    nbytes = 100 * 100 * 4 + 100 * 4

    for load in (partial(tensorkeep.torch.load_into, assign=True, device="cpu:0", dtype="f16"), load_sharded):
        with tensorkeep.staging(device_budget=nbytes // 2 - 1), pytest.raises(LimitError, match="device budget"):
            load(model, tmp_path / "x.safetensors")
        assert model.weight.is_meta
    with tensorkeep.staging(device_budget=nbytes // 2):
        tensorkeep.torch.load_into(model, tmp_path / "x.safetensors", assign=True, device="cpu:0", dtype="f16")
        tensorkeep.torch.load_into(model, tmp_path / "x.safetensors", dtype="f32")  # half of it is free by then
    assert model.weight.equal(saved.weight)


def test_numpy_is_not_concerned(tmp_path: Path, copies_to_the_cpu: list[int]) -> None:
    path = files(tmp_path)["one.safetensors"]

    loaded = tensorkeep.load(path, framework="numpy")

    assert isinstance(loaded["number"], np.ndarray)
    assert copies_to_the_cpu == []


def test_large_tensors_come_back_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(to_host, "PART_NBYTES", 2**16)  # many parts of a tensor that is quick to make
    tensor = torch.randn(300, 700, dtype=torch.complex64).conj()[::2, 1:].T

    indices = ((slice(row, row + 50),) for row in range(0, 699, 50))
    parts = list(to_host.parts_on_host(tensor, indices, current_stream(tensor.device)))
    tensorkeep.save({"x": tensor}, tmp_path / "x.safetensors")

    assert torch.cat(parts).equal(tensor)
    assert tensorkeep.load(tmp_path / "x.safetensors")["x"].equal(tensor.resolve_conj())


def test_small_tensors_may_share_allocations(tmp_path: Path, copies_to_the_cpu: list[int]) -> None:
    path = files(tmp_path)["one.safetensors"]

    with tensorkeep.staging(own=False):
        loaded = tensorkeep.load(path, framework="torch", device=DEVICE)

    assert equal(loaded, state())
    assert len({tensor.untyped_storage().data_ptr() for tensor in loaded.values() if tensor.numel()}) < 20
    assert max(copies_to_the_cpu) == 1
    first, second = (loaded[f"layers.{n}.bias"].requires_grad_() for n in (1, 2))
    product = (first * first).sum()
    with torch.no_grad():
        second.add_(1)  # autograd knows that this is not the memory that it saved
    product.backward()
    assert first.grad is not None
    assert first.grad.equal(2 * state()["layers.1.bias"])


SLICES: dict[str, Any] = {
    "columns": np.s_[..., 100:300],
    "rows": np.s_[:, 20:90],
    "steps": np.s_[5:, ::2],
    "dropped": np.s_[:, :, 5:380, None],
    "added": np.s_[None, 2:, ..., 1:],
    "backwards": np.s_[::-1, :, 3:],
    "listed": np.s_[[5, 2, 5] * 10, :, 3:],
    "small": np.s_[3, 4, 5:9],
}


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("which", SLICES)
def test_parts_are_gathered_on_the_way(
    tmp_path: Path, copies_to_the_cpu: list[int], backend: Any, which: str
) -> None:
    saved = torch.randn(40, 100, 400)
    expected = torch.from_numpy(saved.numpy()[SLICES[which]].copy())
    tensorkeep.torch.save_file({"x": saved, "y": saved.clone()}, tmp_path / "x.safetensors")
    opened = tensorkeep.open(tmp_path / "x.safetensors", framework="torch", device=DEVICE, backend=backend)

    with opened, staging_of(2**21):
        part = opened["x"][SLICES[which]]
        both = opened.load_parts({"x": SLICES[which], "y": SLICES[which]})

    assert all(found.equal(expected) for found in (part, *both.values()))
    assert bool(copies_to_the_cpu) == (which not in {"backwards", "listed", "small"})


def test_parts_fill_existing_tensors(
    tmp_path: Path, copies_to_the_cpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_parts, "device_memory_of", lambda _: TorchDeviceMemory(torch.device("cpu")))
    saved = torch.randn(700, 900)
    tensorkeep.torch.save_file({"x": saved}, tmp_path / "x.safetensors")
    into = torch.zeros(600, 500, dtype=torch.bfloat16)
    heard: list[int] = []

    with tensorkeep.open(tmp_path / "x.safetensors", framework="torch") as opened, staging_of(2**20):
        fill_parts([PartJob(opened["x"], Region((100, 300), (700, 800)), into)], heard.append)

    assert into.equal(saved[100:, 300:800].bfloat16())
    assert sum(heard) == 600 * 500 * 4
    assert copies_to_the_cpu


def test_parts_that_do_not_fit_or_cannot_be_read_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.torch.save_file({"x": torch.randn(1000, 1000)}, path)
    with tensorkeep.open(path, framework="torch", device=DEVICE, backend="pread") as opened:
        with tensorkeep.staging(device_budget=10**6), pytest.raises(LimitError, match="device budget"):
            opened["x"][:, :500]
        with path.open("r+b") as file:
            file.truncate(2_000_000)
        with pytest.raises(TransportError):
            opened["x"][:, :500]


def test_what_transformers_calls_is_staged(
    tmp_path: Path, copies_to_the_cpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers opens each file for the device of each module, and takes tensors and their slices."""
    saved = {"x": torch.randn(1000, 700), "small": torch.randn(3)}
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")
    monkeypatch.setattr("tensorkeep.compat._safe_open.check_device", lambda device, _: device)

    with tensorkeep.safe_open(tmp_path / "x.safetensors", framework="pt", device=DEVICE) as file:
        assert file.get_tensor("x").equal(saved["x"])
        assert copies_to_the_cpu
        copies_to_the_cpu.clear()
        assert file.get_slice("x")[:, 200:].equal(saved["x"][:, 200:])
        assert copies_to_the_cpu
        copies_to_the_cpu.clear()
        assert file.get_slice("x")[...].equal(saved["x"])
        assert copies_to_the_cpu
        assert file.get_slice("small")[1:].equal(saved["small"][1:])


@pytest.mark.parametrize("name", ["one.safetensors", "sharded", "pickle.pt", "tied.safetensors"])
def test_what_shares_allocations_is_what_the_file_holds(tmp_path: Path, name: str) -> None:
    """Also of storages, over which several tensors may be made."""
    saved = state()
    saved |= {"tied": saved["layers.7.bias"][1:], "flipped": saved["layers.9.bias"].T}
    if name == "pickle.pt":
        torch.save(saved, tmp_path / name)
    elif name == "sharded":
        tensorkeep.save_checkpoint(saved, tmp_path / name, max_shard_size="1MB")
    else:
        tensorkeep.save(saved, tmp_path / name, ties="share" if "tied" in name else "copy")

    with tensorkeep.staging(own=False):
        loaded = tensorkeep.load(tmp_path / name, framework="torch", device=DEVICE)

    assert equal(loaded, saved)
    loaded["layers.7.bias"].fill_(5)
    if name in {"pickle.pt", "tied.safetensors"}:
        assert bool((loaded["tied"] == 5).all())
    assert loaded["layers.8.bias"].equal(saved["layers.8.bias"])


def test_a_device_that_is_full_is_our_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies_to_the_cpu: list[int]
) -> None:
    """The buffer on the device, and what the device needs while it converts, are not in the budget."""
    tensorkeep.save({f"{n}": torch.randn(300, 900) for n in range(4)}, tmp_path / "x.safetensors")

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patches:
        patches.setattr(_device_memory, "distribute", full)
        with (
            pytest.raises(LimitError, match="do not fit in the device's memory"),
            tensorkeep.open(tmp_path / "x.safetensors", framework="torch", device="cpu:0") as opened,
        ):
            opened.cast("bf16").load()
    with monkeypatch.context() as patches:
        patches.setattr(_device_memory.torch, "empty", full)
        with pytest.raises(LimitError, match="do not fit in the device's memory"):
            _device_memory.TorchDeviceMemory(torch.device("cpu")).start({}, 2**20)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is pinned memory")
def test_no_pinned_memory_is_our_error() -> None:
    with pytest.raises(LimitError, match=r"no pinned memory.*1,000 bytes.*host_budget"):
        _device_memory.PinnedBuffer(1000, is_pinned=True)
