"""Tensors that are converted, or computed, on their way to a device: the CPU, by another name."""

from __future__ import annotations

import json
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gguf
import h5py
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch import _device_memory, streams
from tensorkeep.errors import IntegrityError, LimitError
from tensorkeep.formats.hdf5.chunks._chunks import Hdf5Chunks
from tensorkeep.quantized import dequantize
from tensorkeep.tensors import PlacedPiece, Region, assemble, load_together
from tensorkeep.tensors.lazy import _by_device, _together
from tensorkeep.transport import LocalFile
from tests.support.tensors.late_device import CpuStreams

DEVICE = "cpu:0"

FLOATS = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]
TARGETS = ["f64", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"]


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return the bytes of the transfers of each load that is staged."""
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    found: list[list[int]] = []
    start, fill = _device_memory.TorchDeviceMemory.start, _device_memory.TorchCopies.fill

    def started(self: Any, targets: Any, buffer_nbytes: int) -> Any:
        found.append([])
        return start(self, targets, buffer_nbytes)

    def filled(self: Any, buffer: Any, moves: Any) -> Any:
        found[-1].append(sum(move.stop - move.start for move in moves))
        return fill(self, buffer, moves)

    monkeypatch.setattr(_device_memory.TorchDeviceMemory, "start", started)
    monkeypatch.setattr(_device_memory.TorchCopies, "fill", filled)
    return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers of all dtypes, with those that a rounding or an overflow changes."""
    path = tmp_path_factory.mktemp("floats") / "x.safetensors"
    torch.manual_seed(4)
    values = torch.randn(20_000, dtype=torch.float64) * torch.logspace(-9, 9, 20_000, dtype=torch.float64)
    values[:4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    state = {f"{dtype} {n}": values[n:].to(dtype, copy=True) for dtype in FLOATS for n in (0, 1)}
    state["count"] = torch.arange(200_000)
    tensorkeep.torch.save_file(state, path)
    return path


@pytest.mark.parametrize(("dtype", "own"), [*((dtype, True) for dtype in TARGETS), ("f32", False)])
def test_casts_give_the_same_numbers_as_on_the_cpu(
    floats: Path, loads: list[list[int]], dtype: str, own: bool
) -> None:
    with tensorkeep.open(floats, framework="torch") as opened:
        expected = opened.cast(dtype).load()
    with tensorkeep.open(floats, framework="torch", device=DEVICE) as opened, tensorkeep.staging(own=own):
        found = opened.cast(dtype).load()

    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        nan = tensor.isnan() if tensor.is_floating_point() else None
        assert nan is None or found[name].isnan().equal(nan), name
        both = (tensor.float(), found[name].float()) if nan is not None else (tensor, found[name])
        assert torch.equal(*(each.nan_to_num(7) for each in both)), name
    assert loads


def test_a_cast_is_one_load_and_its_size_is_the_result(tmp_path: Path, loads: list[list[int]]) -> None:
    saved = {str(n): torch.randn(1000, 1000) for n in range(3)}
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")
    nbytes = 3 * 10**6

    with tensorkeep.open(tmp_path / "x.safetensors", framework="torch", device=DEVICE) as opened:
        with tensorkeep.staging(device_budget=2 * nbytes):
            loaded = opened.cast("bf16").load()
        with tensorkeep.staging(device_budget=2 * nbytes - 1), pytest.raises(LimitError):
            opened.cast("bf16").load()

    assert all(loaded[name].equal(tensor.bfloat16()) for name, tensor in saved.items())
    assert [sum(transfers) for transfers in loads] == [4 * nbytes]


def gguf_file(path: Path) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    numbers = np.random.default_rng(1).normal(size=(600, 4096)).astype(np.float32)
    for type_ in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
        writer.add_tensor(type_.name, gguf.quants.quantize(numbers, type_), raw_dtype=type_)
    writer.add_tensor("plain", numbers[:300].astype(np.float16))
    writer.add_tensor("small", numbers[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def fp8_directory(path: Path) -> Path:
    torch.manual_seed(2)
    weights = {f"layers.{n}.weight": torch.randn(1200, 1000).to(torch.float8_e4m3fn) for n in range(3)}
    scales = {f"{name}_scale_inv": torch.rand(10, 8) for name in weights}
    tensorkeep.save_checkpoint({**weights, **scales, "norm": torch.ones(5)}, path)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_whole_tensors_are_computed_on_the_device_and_parts_in_the_buffers(
    tmp_path: Path, loads: list[list[int]]
) -> None:
    for path, view, stored_nbytes in (
        (gguf_file(tmp_path / "x.gguf"), lambda opened: opened.dequantize(), 600 * 4096 // 32 * (34 + 18)),
        (fp8_directory(tmp_path / "fp8"), dequantize, 3 * (1_200_000 + 320)),
    ):
        heard: list[tuple[int, int]] = []
        with tensorkeep.open(path, framework="torch") as opened:
            expected = view(opened).load()
        with tensorkeep.open(path, framework="torch", device=DEVICE) as opened, tensorkeep.staging(host_budget=2**21):
            loads.clear()
            found = view(opened).load(progress=lambda *so_far, heard=heard: heard.append(so_far))
            n_copied = sum(map(sum, loads))
            large = next(name for name, tensor in expected.items() if tensor.nbytes > 2**21)
            alone = view(opened)[large][...], view(opened)[large].load()
            loads.clear()
            columns = view(opened).load_parts({large: (..., slice(100, 990))})[large]

        assert {name: tensor.dtype for name, tensor in found.items()} == {
            name: tensor.dtype for name, tensor in expected.items()
        }
        assert all(bits(found[name]).equal(bits(tensor)) for name, tensor in expected.items())
        assert columns.equal(expected[large][..., 100:990])
        assert all(bits(each).equal(bits(expected[large])) for each in alone)
        assert stored_nbytes <= n_copied < stored_nbytes + 3_000_000
        assert sum(map(sum, loads)) == columns.nbytes
        assert heard[-1][0] == heard[-1][1]
        assert heard == sorted(heard)


def test_stored_tensors_are_freed_before_the_next_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    batches: list[int] = []

    def noted(tensors: Any, *meter: Any) -> Any:
        if meter:  # the load of all
            return load_together(tensors, *meter)
        assert not any(ref() is not None for ref in held)
        stored = load_together(tensors)
        held.extend(map(weakref.ref, stored.values()))
        batches.append(len(stored))
        return stored

    monkeypatch.setattr(_by_device, "_BATCH_NBYTES", 2_000_000)  # so that each of three weights is a batch
    with tensorkeep.open(fp8_directory(tmp_path / "fp8"), framework="torch", device=DEVICE) as opened:
        view = dequantize(opened)
        monkeypatch.setattr(_together, "load_together", noted)
        loaded = view.load()

    assert batches == [2, 2, 2]
    assert len(loaded) == 4


def test_all_tensors_count_before_any_is_read(tmp_path: Path, loads: list[list[int]]) -> None:
    with tensorkeep.open(gguf_file(tmp_path / "x.gguf"), framework="torch", device=DEVICE) as opened:
        plain = opened.select("plain")
        blocks = max(lazy.nbytes for lazy in opened.select("Q*").values()) + 24 * 600 * 4096  # and to compute them
        for view, beside in ((opened.dequantize(), blocks), (plain, 0), (plain.cast("f8_e4m3"), 0)):
            nbytes = sum(tensor.nbytes for tensor in view.load().values()) + beside
            loads.clear()
            with tensorkeep.staging(device_budget=nbytes - 1), pytest.raises(LimitError, match="device budget"):
                view.load()
            assert not loads
        with tensorkeep.staging(device_budget=sum(lazy.nbytes for lazy in opened.dequantize().values()) + blocks):
            opened.dequantize().load()


def test_parts_are_checked_and_the_file_is_read_once(
    tmp_path: Path, loads: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, path = torch.randn(4000, 1000), tmp_path / "x.safetensors"
    tensorkeep.save({"x": saved}, path)
    n_read: list[int] = []
    read_into = LocalFile.read_into

    def counted(self: Any, parts: Any) -> None:
        parts = list(parts)
        n_read.extend(len(into) for _, into in parts)
        read_into(self, parts)

    monkeypatch.setattr(LocalFile, "read_into", counted)
    with tensorkeep.open(path, framework="torch", device=DEVICE, verify=True) as opened:
        with tensorkeep.staging(host_budget=2**21, n_threads=4):
            assert opened["x"][:, :900].equal(saved[:, :900])
        assert len(loads[-1]) > 10
        assert sum(n_read) < 1.1 * saved.nbytes
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with (
        tensorkeep.open(path, framework="torch", device=DEVICE, verify=True) as opened,
        pytest.raises(IntegrityError, match="`x`"),
    ):
        opened["x"][:, :900]


def test_chunks_are_unpacked_in_the_buffers(
    tmp_path: Path, loads: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, whatever the buffers' size; what no chunk holds is the fill value."""
    saved = np.random.default_rng(3).normal(size=(1001, 700)).astype(np.float32)
    options: Any = {"compression": "gzip", "compression_opts": 1}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("small", data=saved, chunks=(100, 300), **options)
        file.create_dataset("large", data=saved.astype(">f4"), chunks=(300, 700), **options)
        part = file.create_dataset("part", shape=saved.shape, dtype="f4", chunks=(64, 700), fillvalue=7.5)
        part[70:500] = saved[70:500]
    expected = {"small": saved, "large": saved, "part": np.full_like(saved, 7.5)}
    expected["part"][70:500] = saved[70:500]
    unpacked: list[Any] = []
    unpack = Hdf5Chunks.unpack
    monkeypatch.setattr(
        Hdf5Chunks,
        "unpack",
        lambda self, *chunk: unpacked.append(chunk) or unpack(self, *chunk),  # type: ignore[func-returns-value]
    )

    with tensorkeep.open(tmp_path / "x.h5", framework="torch", device=DEVICE) as opened:
        for host_budget, n_staged in ((2**20, 2), (2**22, 3), (2**28, 3)):
            loads.clear()
            unpacked.clear()
            with tensorkeep.staging(host_budget=host_budget, n_threads=3):
                found = opened.load()
                assert all(found[name].equal(torch.from_numpy(array)) for name, array in expected.items())
                assert sum(map(sum, loads)) == n_staged * saved.nbytes
                assert len(unpacked) == 33 + 4
                for index in (np.s_[200:900, 1:], np.s_[5:], np.s_[100:, ::2]):
                    assert opened["small"][index].equal(torch.from_numpy(saved)[index])
        with tensorkeep.staging(device_budget=3 * saved.nbytes - 1), pytest.raises(LimitError, match="device budget"):
            opened.load()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("verify", [False, True])
def test_pieces_are_gathered_in_the_buffers(
    tmp_path: Path, loads: list[list[int]], axis: int, *, verify: bool
) -> None:
    saved = torch.randn(800, 900)
    halves = [half.contiguous() for half in saved.chunk(2, axis)]
    middle = (400, 900) if axis == 0 else (800, 450)
    regions = [Region((0, 0), middle), Region((400, 0) if axis == 0 else (0, 450), (800, 900))]
    for n, half in enumerate(halves):
        tensorkeep.save({"x": half}, tmp_path / f"{n}.safetensors")
    with ExitStack() as stack:
        files = [stack.enter_context(tensorkeep.open(tmp_path / f"{n}.safetensors", verify=verify)) for n in range(2)]
        placed = [PlacedPiece.of(region, file.path, file["x"]) for region, file in zip(regions, files, strict=True)]
        lazy = assemble("x", "F32", (800, 900), placed, path="both", framework="torch", device=DEVICE)
        with tensorkeep.staging(host_budget=2**20, n_threads=3):
            assert load_together({"x": lazy})["x"].equal(saved)
        assert sum(map(sum, loads)) == saved.nbytes
