"""Devices compute the same bits as the CPU; here, the device is the CPU by another name."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch import _device_memory, streams
from tensorkeep.arrays.torch._arithmetic import TorchArithmetic
from tensorkeep.errors import FormatError, IntegrityError, LimitError
from tensorkeep.quantized import dequantize
from tensorkeep.tensors.lazy import _by_device
from tensorkeep.tensors.quantized import DEQUANTIZED
from tensorkeep.tensors.quantized import dequantize as dequantize_blocks
from tensorkeep.tensors.quantized._dequantize import dequantize_by
from tests.quantized.test_numbers import CASES
from tests.support.tensors.late_device import CpuStreams
from tests.tensors.quantized.test_quantized import bits as bits_of
from tests.tensors.quantized.test_quantized import blocks_of

DEVICE = "cpu:0"


@pytest.fixture(autouse=True)
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the device compute however small tensors are; return the names of those that it was given."""
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    monkeypatch.setattr(_by_device, "_COMPUTED_FROM_NBYTES", 1)
    names: list[str] = []
    fill = _by_device.fill_computed

    def filled(each: Any, *rest: Any) -> None:
        names.extend(each.tensors)
        fill(each, *rest)

    monkeypatch.setattr(_by_device, "fill_computed", filled)
    return names


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("case", CASES)
def test_every_layout_is_computed_with_the_same_bits(
    written: Path, case: str, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for dtype in ("f32", "bf16"):
        with tensorkeep.open(written / case, framework="torch") as opened:
            expected = dequantize(opened, dtype).load()
        with tensorkeep.open(written / case, framework="torch", device=DEVICE) as opened:
            found = dequantize(opened, dtype).load()
        assert found.keys() == expected.keys()
        assert all(bits(found[name]) == bits(tensor) for name, tensor in expected.items())
    assert len(computed) == 2


@pytest.mark.parametrize("name", DEQUANTIZED)
def test_every_type_of_ggml_is_computed_with_the_same_numbers(name: str) -> None:
    """Random bytes give scales that are NaN, too, whose bits may be any."""
    blocks = blocks_of(name)[:500]
    ops = TorchArithmetic(torch.device("cpu"))

    found = dequantize_by(ops, name, torch.from_numpy(blocks)).numpy()

    expected = dequantize_blocks(name, blocks.reshape(-1))
    is_number = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert bits_of(found[is_number]).tobytes() == bits_of(expected[is_number]).tobytes()


def fp8_directory(path: Path, n_layers: int = 4) -> Path:
    torch.manual_seed(2)
    weights = {f"layers.{n}.weight": torch.randn(256, 384).to(torch.float8_e4m3fn) for n in range(n_layers)}
    scales = {f"{name}_scale_inv": torch.rand(2, 3) for name in weights}
    tensorkeep.save_checkpoint({**weights, **scales, "norm": torch.ones(5)}, path)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_stored_tensors_are_on_the_device_a_few_at_a_time(
    tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the budget has room for beside all results."""
    together: list[int] = []
    batches = _by_device.Computed.batches

    def noted(self: Any, room: int) -> Any:
        for batch in batches(self, room):
            together.append(len(batch))
            yield batch

    monkeypatch.setattr(_by_device.Computed, "batches", noted)
    n_elements, stored = 256 * 384, 256 * 384 + 2 * 3 * 4
    results, scratch = 4 * 2 * n_elements + 5 * 4, 24 * n_elements
    path = fp8_directory(tmp_path / "fp8")
    expected = tensorkeep.load(path, framework="torch", dequantize="bf16")

    for budget, sizes in (
        (None, [4]),
        (results + scratch + 2 * stored, [2, 2]),
        (results + scratch + stored, [1] * 4),
    ):
        together.clear()
        with tensorkeep.staging(device_budget=budget):
            found = tensorkeep.load(path, framework="torch", device=DEVICE, dequantize="bf16")
        assert together == sizes
        assert all(bits(found[name]) == bits(tensor) for name, tensor in expected.items())
    computed.clear()
    with tensorkeep.staging(device_budget=results + scratch + stored - 1), pytest.raises(LimitError, match="budget"):
        tensorkeep.load(path, framework="torch", device=DEVICE, dequantize="bf16")
    assert not computed


def test_what_goes_wrong_is_an_error_and_nothing_is_kept(
    tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fp8_directory(tmp_path / "fp8")
    (file,) = path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(IntegrityError):
        tensorkeep.load(path, framework="torch", device=DEVICE, dequantize="bf16", verify=True)
    file.write_bytes(content[:-200_000])
    with pytest.raises(FormatError):
        tensorkeep.load(path, framework="torch", device=DEVICE, dequantize="bf16")

    ordered = shutil.copytree(written / "gptq 4 bits, act order", tmp_path / "gptq")
    name = next(ordered.glob("model*.safetensors"))
    state = tensorkeep.load(name, framework="torch")
    order = next(each for each in state if each.endswith("g_idx"))
    state[order][3] = 2**30
    tensorkeep.save(state, name)
    with pytest.raises(FormatError, match="groups that do not exist"):
        tensorkeep.load(ordered, framework="torch", device=DEVICE, dequantize="bf16")

    monkeypatch.setattr(TorchArithmetic, "floats", interrupt)
    targets: list[weakref.ref[torch.Tensor]] = []
    allocate = _device_memory.TorchDeviceMemory.allocate

    def noted(self: Any, entries: Any) -> Any:
        made = allocate(self, entries)
        targets.extend(weakref.ref(each.tensor) for each in made)
        return made

    monkeypatch.setattr(_device_memory.TorchDeviceMemory, "allocate", noted)
    with pytest.raises(KeyboardInterrupt):
        tensorkeep.load(written / "awq", framework="torch", device=DEVICE, dequantize="bf16")
    gc.collect()
    assert targets
    assert not any(target() is not None for target in targets)


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt
