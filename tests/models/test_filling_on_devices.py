"""Models that are on a device already: casts, views and computed tensors pass through its buffers."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch import _device_memory, streams
from tensorkeep.arrays.torch._dense import TorchArrays
from tensorkeep.errors import IntegrityError, LimitError
from tensorkeep.models import PartJob, fill_parts
from tensorkeep.models.filling import _whole
from tensorkeep.quantized import dequantize
from tensorkeep.tensors import Region
from tests.support.tensors.late_device import CpuStreams

COMPUTE = _whole._compute


@pytest.fixture(autouse=True)
def n_copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the CPU be a device where parameters are; return the bytes of the transfers to it."""
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    make, fill = TorchArrays.__init__, _device_memory.TorchCopies.fill
    found: list[int] = []

    def made(self: Any, device: Any = "cpu") -> None:
        make(self, "cpu:0" if isinstance(device, torch.device) else device)

    def filled(self: Any, buffer: Any, moves: Any) -> Any:
        found.append(sum(move.stop - move.start for move in moves))
        return fill(self, buffer, moves)

    def on_the_host(*_: Any) -> None:
        raise AssertionError("nothing passes through pageable memory")

    monkeypatch.setattr(TorchArrays, "__init__", made)
    monkeypatch.setattr(_device_memory.TorchCopies, "fill", filled)
    for name in ("_pass_through", "_compute"):
        monkeypatch.setattr(_whole, name, on_the_host)
    return found


class Model(torch.nn.Module):
    """Parameters, one of them a transposed view."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.plain = torch.nn.Parameter(torch.zeros(700, 900, dtype=dtype))
        self.transposed = torch.nn.Parameter(torch.zeros(900, 700, dtype=dtype).T)
        self.bias = torch.nn.Parameter(torch.zeros(900, dtype=dtype)[::2])


def saved_model() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {
        "plain": torch.randn(700, 900),
        "transposed": torch.randn(700, 900),
        "bias": torch.randn(450),
    }


@pytest.mark.parametrize("host_budget", [2**20, 2**28])
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float64])
def test_casts_and_views_are_filled_by_the_device(
    tmp_path: Path, n_copied: list[int], stored: torch.dtype, host_budget: int
) -> None:
    saved = {name: tensor.to(stored) for name, tensor in saved_model().items()}
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")
    model = Model(torch.float32)
    memory = {name: (tensor.data_ptr(), tensor.stride()) for name, tensor in model.named_parameters()}

    with tensorkeep.staging(host_budget=host_budget, n_threads=3):
        tensorkeep.torch.load_into(model, tmp_path / "x.safetensors")

    for name, tensor in model.named_parameters():
        assert tensor.equal(saved[name].float())
        assert memory[name] == (tensor.data_ptr(), tensor.stride())
    assert sum(n_copied) == sum(tensor.nbytes for tensor in saved.values())


def test_views_of_checkpoints_are_converted_on_the_way(tmp_path: Path, n_copied: list[int]) -> None:
    saved = saved_model()
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")
    strided = {name: saved[name].T.contiguous().T for name in ("plain", "transposed")}
    torch.save({**saved, **strided}, tmp_path / "x.pt")
    for dtype, n_bytes in ((torch.bfloat16, 4), (torch.float32, 2)):
        heard: list[tuple[int, int]] = []
        model = Model(dtype)
        with tensorkeep.open(tmp_path / "x.safetensors") as opened:
            n_copied.clear()
            tensorkeep.torch.load_into(model, opened.cast("bf16"), progress=lambda *so_far: heard.append(so_far))  # noqa: B023
        assert all(tensor.equal(saved[name].bfloat16().to(dtype)) for name, tensor in model.named_parameters())
        assert sum(n_copied) == n_bytes * sum(tensor.numel() for tensor in saved.values())
        assert heard[-1][0] == heard[-1][1]
    model = Model(torch.float32)
    tensorkeep.torch.load_into(model, tmp_path / "x.pt")
    assert all(tensor.equal(saved[name]) for name, tensor in model.named_parameters())


def test_quantized_tensors_are_computed_into_parameters(tmp_path: Path, n_copied: list[int]) -> None:
    weights = {name: torch.randn(700, 900).to(torch.float8_e4m3fn) for name in ("plain", "transposed")}
    state = {**weights, **{f"{name}_scale_inv": torch.rand(6, 8) for name in weights}, "bias": torch.randn(450)}
    tensorkeep.save_checkpoint(state, tmp_path / "fp8")
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (tmp_path / "fp8" / "config.json").write_text(json.dumps(config))
    numbers = np.random.default_rng(1).normal(size=(700, 896)).astype(np.float32)
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "llama")
    type_ = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("x", gguf.quants.quantize(numbers, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with tensorkeep.open(tmp_path / "fp8") as opened:
        view = dequantize(opened, "bf16")
        expected = view.on_devices({"": "cpu"}).load()
        model = Model(torch.float32)
        n_copied.clear()
        tensorkeep.torch.load_into(model, view)
        needed = 700 * 900 * 25 + 6 * 8 * 4
        with tensorkeep.staging(device_budget=needed - 1), pytest.raises(LimitError, match="device budget"):
            tensorkeep.torch.load_into(model, view)
        with tensorkeep.staging(device_budget=needed):
            tensorkeep.torch.load_into(model, view)
    assert all(tensor.equal(expected[name].float()) for name, tensor in model.named_parameters())
    assert sum(n_copied) < 2.1 * 2 * 700 * 900

    holder = torch.nn.Module()
    holder.x = torch.nn.Parameter(torch.zeros(896, 700).T)
    with tensorkeep.open(tmp_path / "x.gguf") as opened:
        tensorkeep.torch.load_into(holder, opened.dequantize("f32"))
        assert holder.x.equal(torch.from_numpy(opened["x"].dequantize("f32")[...]))


def test_parts_of_made_tensors_fill_views(tmp_path: Path, n_copied: list[int]) -> None:
    saved = torch.randn(700, 900)
    tensorkeep.torch.save_file({"x": saved}, tmp_path / "x.safetensors")
    into = torch.zeros(500, 600).T
    with tensorkeep.open(tmp_path / "x.safetensors") as opened:
        fill_parts([PartJob(opened["x"].cast("bf16"), Region((100, 300), (700, 800)), into)], lambda _: None)
    assert into.equal(saved[100:, 300:800].bfloat16().float())
    assert n_copied


def test_damage_is_found_on_the_way(tmp_path: Path) -> None:
    tensorkeep.save(saved_model(), tmp_path / "x.safetensors")
    content = bytearray((tmp_path / "x.safetensors").read_bytes())
    content[-3] ^= 1
    (tmp_path / "x.safetensors").write_bytes(content)
    with (
        tensorkeep.open(tmp_path / "x.safetensors", verify=True) as opened,
        pytest.raises(IntegrityError),
    ):
        tensorkeep.torch.load_into(Model(torch.float32), opened.cast("bf16"))


def test_the_callers_functions_run_in_its_own_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_whole, "_compute", COMPUTE)
    saved, threads = saved_model(), set()

    def doubled(values: Any) -> Any:
        threads.add(threading.current_thread())
        return 2 * values

    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")
    model = Model(torch.float32)
    with tensorkeep.open(tmp_path / "x.safetensors", framework="torch") as opened:
        tensorkeep.torch.load_into(model, opened.map(doubled))
    assert all(tensor.equal(2 * saved[name]) for name, tensor in model.named_parameters())
    assert threads == {threading.current_thread()}


def test_what_is_rounded_at_random_is_not_rounded_by_the_device(tmp_path: Path) -> None:
    tensorkeep.torch.save_file(saved_model(), tmp_path / "x.safetensors")
    model = Model(torch.bfloat16)
    with tensorkeep.open(tmp_path / "x.safetensors", framework="torch") as opened:
        expected = opened.cast("bf16", seed=3).load()
        on_device = opened.cast("bf16", seed=3).on_devices({"": torch.device("cpu")}).load()
        tensorkeep.torch.load_into(model, opened.cast("bf16", seed=3))
    assert not expected["plain"].equal(saved_model()["plain"].bfloat16())
    assert all(on_device[name].equal(tensor) for name, tensor in expected.items())
    assert all(tensor.equal(expected[name]) for name, tensor in model.named_parameters())


def test_inference_tensors_are_filled(tmp_path: Path) -> None:
    tensorkeep.torch.save_file(saved_model(), tmp_path / "x.safetensors")
    with torch.inference_mode():
        model = Model(torch.float32)
    with tensorkeep.open(tmp_path / "x.safetensors") as opened:
        tensorkeep.torch.load_into(model, opened.cast("f16"))
    assert all(tensor.equal(saved_model()[name].half().float()) for name, tensor in model.named_parameters())
