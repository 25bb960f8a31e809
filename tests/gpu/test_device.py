"""Loads to a GPU, and saves from it, with torch: values, owners, order of work, memory.

These tests need torch with a CUDA device, NumPy and pytest, and nothing else of the development packages.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tensorkeep
from tensorkeep.errors import IntegrityError, LimitError
from tensorkeep.integrations.distributed import TensorkeepWriter
from tensorkeep.models import deferred_tensors
from tests.gpu.device import DEVICE, IS_STAND_IN

N_ROWS = 300 if IS_STAND_IN else 5000


@pytest.fixture(autouse=True)
def nothing_stays_allocated() -> Iterator[None]:
    before = torch.cuda.memory_allocated()
    yield
    torch.cuda.synchronize()
    if not IS_STAND_IN:
        torch._C._cuda_clearCublasWorkspaces()  # matrix products keep memory for the next
    assert torch.cuda.memory_allocated() == before


@functools.cache
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    large = {f"layers.{n}.weight": torch.randn(N_ROWS // 5, 3000).bfloat16() for n in range(8)}
    small = {f"layers.{n}.bias": torch.randn(n % 13, 3).to(torch.float16) for n in range(2000)}
    odd = {
        "byte": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "number": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.empty(0, 5),
        "flag": torch.tensor([True, False]),
        "complex": torch.randn(5, dtype=torch.complex64),
        "f8": torch.randn(7).to(torch.float8_e4m3fn),
        "huge": torch.randn(N_ROWS, 4001),
    }
    names = ("bfloat16", "float16", "float8_e5m2", "float8_e4m3fn", "uint16", "uint32", "uint64", "float8_e8m0fnu")
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)  # NaNs of all kinds are among them
    patterns = {name: bits.clone().view(getattr(torch, name)) for name in names if hasattr(torch, name)}
    return large | small | odd | patterns


def equal(loaded: dict[str, Any], saved: dict[str, torch.Tensor]) -> bool:
    return loaded.keys() == saved.keys() and all(
        loaded[name].device.type == DEVICE.type
        and loaded[name].dtype == tensor.dtype
        and loaded[name].shape == tensor.shape
        and loaded[name].cpu().reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))
        for name, tensor in saved.items()
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    paths = {name: folder / name for name in ("one.safetensors", "sharded", "pickle.pt")}
    tensorkeep.torch.save_file(state(), paths["one.safetensors"])
    tensorkeep.save_checkpoint(state(), paths["sharded"], max_shard_size="20MB")
    torch.save(state(), paths["pickle.pt"])
    return paths


@pytest.mark.parametrize("host_budget", [2**20, 2**28])
@pytest.mark.parametrize("name", ["one.safetensors", "sharded", "pickle.pt"])
def test_every_kind_of_file_is_loaded(saved: dict[str, Path], name: str, host_budget: int) -> None:
    with tensorkeep.staging(host_budget=host_budget):
        assert equal(tensorkeep.load(saved[name], framework="torch", device=DEVICE), state())


def test_the_stand_in_for_safetensors_loads(saved: dict[str, Path]) -> None:
    assert equal(tensorkeep.torch.load_file(saved["one.safetensors"], device=DEVICE), state())
    for device in () if IS_STAND_IN else (0, "cuda", "cuda:0"):
        assert equal(tensorkeep.torch.load_file(saved["one.safetensors"], device=device), state())
    with tensorkeep.safe_open(saved["one.safetensors"], framework="pt", device=DEVICE) as file:
        assert file.get_slice("huge")[10:20, 3:9].cpu().equal(state()["huge"][10:20, 3:9])
        assert file.get_tensor("huge").cpu().equal(state()["huge"])


def test_safetensors_loads_as_an_engine(saved: dict[str, Path]) -> None:
    for device in (DEVICE,) if IS_STAND_IN else (DEVICE, 0, "cuda"):
        loaded = tensorkeep.load(saved["one.safetensors"], framework="torch", device=device, engine="safetensors")
        assert equal(loaded, state())
        del loaded


def test_tensors_own_their_memory(saved: dict[str, Path]) -> None:
    loaded = tensorkeep.load(saved["one.safetensors"], framework="torch", device=DEVICE)
    pointers = {tensor.untyped_storage().data_ptr() for tensor in loaded.values() if tensor.numel()}
    assert len(pointers) == sum(tensor.numel() > 0 for tensor in loaded.values())
    kept = loaded.pop("layers.3.weight")
    del loaded
    torch.cuda.empty_cache()
    torch.randn(10_000_000, device=DEVICE)
    assert kept.cpu().equal(state()["layers.3.weight"])


@pytest.mark.skipif(IS_STAND_IN, reason="its work is never in flight, and slow")
def test_memory_that_work_in_flight_still_reads_is_not_overwritten(saved: dict[str, Path]) -> None:
    """Memory freed by the caller may be given to the new tensors while its kernels still run."""
    for _ in range(5):
        first = torch.randn(4000, 4000, device=DEVICE)
        expected = first.double().sum()
        torch.cuda.synchronize()
        product = first
        for _ in range(20):
            product = torch.mm(first, first) * 0 + first
        total = product.double().sum()
        del first, product
        loaded = tensorkeep.load(saved["one.safetensors"], framework="torch", device=DEVICE)
        assert torch.isclose(total, expected)
        assert equal(loaded, state())
        del loaded, total, expected


def test_loads_in_other_streams_and_threads_are_right(saved: dict[str, Path]) -> None:
    results: list[bool] = []

    def load() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            loaded = tensorkeep.load(saved["sharded"], framework="torch", device=DEVICE)
            results.append(equal(loaded, state()))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_damage_is_found_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    tensorkeep.save(state(), path)
    assert equal(tensorkeep.load(path, framework="torch", device=DEVICE, verify=True), state())
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError):
        tensorkeep.load(path, framework="torch", device=DEVICE, verify=True)


def test_small_tensors_may_share_allocations(saved: dict[str, Path]) -> None:
    with tensorkeep.staging(own=False):
        loaded = tensorkeep.load(saved["sharded"], framework="torch", device=DEVICE)
    assert equal(loaded, state())
    assert len({tensor.untyped_storage().data_ptr() for tensor in loaded.values()}) < 100
    kept = loaded["layers.7.bias"]
    del loaded
    torch.cuda.empty_cache()
    torch.randn(10_000_000, device=DEVICE)
    assert kept.cpu().equal(state()["layers.7.bias"])


def test_tensors_go_where_the_device_map_says(saved: dict[str, Path]) -> None:
    last = torch.device(DEVICE.type, max(torch.cuda.device_count() - 1, 0))
    places = {"layers": DEVICE, "": "cpu", "huge": last}
    loaded = tensorkeep.load(saved["sharded"], device_map=places)
    placed = {name for name, tensor in loaded.items() if tensor.device.type == DEVICE.type}
    assert IS_STAND_IN or placed == {name for name in state() if name.startswith("layers") or name == "huge"}
    assert all(loaded[name].cpu().view(torch.uint8).equal(state()[name].view(torch.uint8)) for name in ("huge", "f8"))


def test_columns_are_gathered_on_the_way(saved: dict[str, Path]) -> None:
    with tensorkeep.open(saved["one.safetensors"], framework="torch", device=DEVICE) as opened:
        columns = opened["huge"][:, 1000:3000]
        parts = opened.load_parts({"huge": (..., slice(0, 999)), "layers.0.weight": (slice(None), slice(5, 2000))})
    assert columns.cpu().equal(state()["huge"][:, 1000:3000])
    assert parts["huge"].cpu().equal(state()["huge"][:, :999])
    assert parts["layers.0.weight"].cpu().equal(state()["layers.0.weight"][:, 5:2000])


def test_deferred_tensors_are_read_into_parameters(saved: dict[str, Path]) -> None:
    with tensorkeep.open(saved["one.safetensors"], framework="torch") as opened:
        weights = dict(deferred_tensors(opened))
        parameter = torch.empty(N_ROWS, 2000, device=DEVICE)
        parameter.copy_(weights["huge"].narrow(1, 2000, 2000))
        assert parameter.cpu().equal(state()["huge"][:, 2000:4000])
        assert weights["huge"][:10].to(DEVICE).cpu().equal(state()["huge"][:10])


def test_a_snapshot_on_the_device_is_the_state_at_the_call(tmp_path: Path) -> None:
    values = {name: tensor.to(DEVICE, copy=True) for name, tensor in state().items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        values["huge"] = values["huge"] + 1
        handle = tensorkeep.save_async(values, tmp_path / "x.safetensors", snapshot="device")
        for tensor in values.values():
            tensor.zero_()
    handle.result()
    expected = state() | {"huge": state()["huge"] + 1}
    assert equal(tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device=DEVICE), expected)


def test_a_model_on_the_device_is_filled_where_it_is(tmp_path: Path) -> None:
    model = torch.nn.Linear(3000, 2000).to(DEVICE)
    pointer = model.weight.data_ptr()
    for dtype in (torch.float32, torch.bfloat16):
        values = {"weight": torch.randn(2000, 3000).to(dtype), "bias": torch.randn(2000).to(dtype)}
        tensorkeep.torch.save_file(values, tmp_path / "model.safetensors")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        tensorkeep.torch.load_into(model, tmp_path / "model.safetensors")
        assert torch.cuda.max_memory_allocated() - before <= 17 * 2**20
        assert model.weight.data_ptr() == pointer
        assert model.weight.cpu().equal(values["weight"].float())
        assert model.bias.cpu().equal(values["bias"].float())


def test_parameters_of_several_dtypes_are_filled_from_one(tmp_path: Path) -> None:
    dtypes = (torch.bfloat16, torch.float32, torch.float8_e5m2, torch.float16)
    values = {f"{n}": torch.randn(100, n).bfloat16() for n in range(1, 200)}
    tensorkeep.torch.save_file(values, tmp_path / "model.safetensors")
    model = torch.nn.Module()
    for n in range(1, 200):
        model.register_buffer(f"{n}", torch.zeros(100, n, dtype=dtypes[n % 4], device=DEVICE))
    tensorkeep.torch.load_into(model, tmp_path / "model.safetensors")
    assert equal(model.state_dict(), {name: tensor.to(dtypes[int(name) % 4]) for name, tensor in values.items()})


def test_the_default_device_does_not_matter(saved: dict[str, Path]) -> None:
    with DEVICE:
        assert equal(tensorkeep.load(saved["one.safetensors"], framework="torch", device=DEVICE), state())


def test_casts_are_made_on_the_device(saved: dict[str, Path]) -> None:
    with tensorkeep.open(saved["one.safetensors"], framework="torch", device=DEVICE) as opened:
        loaded = opened.select("layers.*.weight").cast("f32").load()
    assert equal(loaded, {name: state()[name].float() for name in loaded})


def test_saves_are_what_the_device_holds(tmp_path: Path) -> None:
    values = {name: tensor.to(DEVICE, copy=True) for name, tensor in state().items()}
    values["transposed"] = torch.randn(3001, 1999, device=DEVICE).T
    tensorkeep.save_checkpoint(values, tmp_path / "saved")
    loaded = tensorkeep.load(tmp_path / "saved", framework="torch", device=DEVICE)
    assert equal(loaded, {name: tensor.cpu() for name, tensor in values.items()})


def test_a_checkpoint_beyond_the_budget_is_refused(saved: dict[str, Path]) -> None:
    with tensorkeep.staging(device_budget=10**6), pytest.raises(LimitError, match="device budget"):
        tensorkeep.load(saved["one.safetensors"], framework="torch", device=DEVICE)


def test_device_memory_beside_the_tensors_is_one_buffer(saved: dict[str, Path]) -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loaded = tensorkeep.load(saved["one.safetensors"], framework="torch", device=DEVICE)
    held = torch.cuda.memory_allocated() - before
    assert torch.cuda.max_memory_allocated() - before - held <= 17 * 2**20
    del loaded


@pytest.mark.skipif(IS_STAND_IN, reason="no memory is pinned")
def test_pinned_memory_stays_within_the_budget(saved: dict[str, Path]) -> None:
    before = torch.cuda.host_memory_stats()["active_bytes.current"]
    torch.cuda.reset_peak_host_memory_stats()
    with tensorkeep.staging(host_budget=32 * 2**20):
        tensorkeep.load(saved["one.safetensors"], framework="torch", device=DEVICE)
    assert torch.cuda.host_memory_stats()["active_bytes.peak"] - before <= 32 * 2**20


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is no second GPU")
def test_threads_mean_the_device_that_the_caller_has_set(saved: dict[str, Path]) -> None:
    with torch.cuda.device(1):
        with tensorkeep.open(saved["one.safetensors"], framework="torch", device="cuda") as opened:
            parts = opened.load_parts({f"layers.{n}.bias": ... for n in range(20)})
        with tensorkeep.safe_open(saved["one.safetensors"], "pt", "cuda") as file, file.prefetch() as loader:
            fetched = dict(loader)
    assert {tensor.device for tensor in (*parts.values(), *fetched.values())} == {torch.device("cuda", 1)}


def test_a_save_in_several_files_follows_the_stream_of_the_caller(tmp_path: Path) -> None:
    values = {f"{n}": torch.zeros(N_ROWS, 1000, device=DEVICE) for n in range(4)}
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        if not IS_STAND_IN:
            torch.cuda._sleep(200_000_000)
        for tensor in values.values():
            tensor.fill_(1)
        tensorkeep.save_checkpoint(values, tmp_path / "saved", max_shard_size="1kB")
    loaded = tensorkeep.load(tmp_path / "saved", framework="torch")
    assert all(tensor.all() for tensor in loaded.values())


@pytest.mark.filterwarnings("ignore")
def test_a_save_of_a_rank_follows_the_stream_of_the_caller(tmp_path: Path) -> None:
    values = {name: tensor.to(DEVICE, copy=True) for name, tensor in state().items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        values["huge"] = values["huge"] + 1
        dcp.save(values, storage_writer=TensorkeepWriter(tmp_path), no_dist=True)
    expected = state() | {"huge": state()["huge"] + 1}
    assert equal(tensorkeep.load(tmp_path, framework="torch", device=DEVICE, verify=True), expected)


@pytest.mark.parametrize("snapshot", [None, "device"])
def test_repeated_saves_keep_no_more_memory_of_the_device(tmp_path: Path, snapshot: Any) -> None:
    """Each stream would keep what was freed in it, and torch has dozens of them."""
    values = {name: tensor.to(DEVICE) for name, tensor in state().items()}
    reserved: list[int] = []
    for _ in range(4 if IS_STAND_IN else 40):
        if snapshot is None:
            tensorkeep.save(values, tmp_path / "x.safetensors", durable=False)
        else:
            tensorkeep.save_async(values, tmp_path / "x.safetensors", durable=False, snapshot=snapshot).result()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] <= reserved[3]
