"""Numbers that a GPU computes of quantized tensors have the bits that the CPU computes; models there are filled."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch._arithmetic import TorchArithmetic
from tensorkeep.errors import LimitError
from tensorkeep.formats.gguf import GGML_TYPES_BY_NAME
from tensorkeep.quantized import dequantize
from tensorkeep.tensors.quantized import DEQUANTIZED
from tensorkeep.tensors.quantized import dequantize as dequantize_blocks
from tensorkeep.tensors.quantized._dequantize import dequantize_by
from tests.gpu.device import DEVICE, IS_STAND_IN

SIZE = 1024 if IS_STAND_IN else 4096
SCRATCH_NBYTES = 24 * min(SIZE * SIZE, 2**23)


def words(*shape: int) -> Any:
    return np.random.default_rng(1).integers(-(2**31), 2**31, shape, np.int32)


def octets(*shape: int, below: int = 256, dtype: Any = np.uint8) -> Any:
    return np.random.default_rng(2).integers(0, below, shape, np.uint8).view(dtype)


def halves(*shape: int) -> Any:
    return np.random.default_rng(3).random(shape).astype(np.float16)


@functools.cache
def layouts() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return tensors and configurations of checkpoints with one weight, for each operation that formulas use."""
    n, f8 = SIZE, ml_dtypes.float8_e4m3fn
    columns = np.random.default_rng(4).permutation(n).astype(np.int32) // 128
    scheme = {"num_bits": 5, "type": "int", "group_size": 128, "strategy": "group", "symmetric": True}
    return {
        "awq": (
            {"w.qweight": words(n, n // 8), "w.qzeros": words(n // 128, n // 8), "w.scales": halves(n // 128, n)},
            {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
        ),
        "gptq of 3 bits": (
            {
                "w.qweight": words(n * 3 // 32, n),
                "w.qzeros": words(n // 128, n * 3 // 32),
                "w.scales": halves(n // 128, n),
                "w.g_idx": columns,
            },
            {"quant_method": "gptq", "bits": 3, "group_size": 128, "desc_act": True},
        ),
        "packed in 5 bits": (
            {"w.weight_packed": words(n, n * 5 // 32), "w.weight_scale": halves(n, n // 128)},
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"all": {"targets": ["Linear"], "weights": scheme}},
            },
        ),
        "nvfp4": (
            {
                "w.weight_packed": octets(n, n // 2),
                "w.weight_scale": octets(n, n // 16, below=120, dtype=f8),
                "w.weight_global_scale": np.full(1, 3, np.float32),
            },
            {"quant_method": "compressed-tensors"},
        ),
        "mxfp4": (
            {"w.weight_blocks": octets(4, n // 4, n // 32, 16), "w.weight_scales": octets(4, n // 4, n // 32)},
            {"quant_method": "mxfp4"},
        ),
        "blocks of f8": (
            {
                "w.weight": octets(n, n, below=120, dtype=f8),
                "w.weight_scale_inv": np.random.default_rng(5).random((n // 128, n // 128), np.float32),
            },
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
        ),
    }


def saved(path: Path, layout: str) -> Path:
    tensors, config = layouts()[layout]
    tensorkeep.save_checkpoint(tensors, path)
    (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    return path


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_numbers_have_the_same_bits(tmp_path: Path, layout: str, dtype: str) -> None:
    path = saved(tmp_path / "quantized", layout)
    expected = tensorkeep.load(path, framework="torch", dequantize=dtype)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    found = tensorkeep.load(path, framework="torch", device=DEVICE, dequantize=dtype)

    beside = torch.cuda.max_memory_allocated() - before - sum(tensor.nbytes for tensor in found.values())
    assert beside <= 2 * SIZE * SIZE + SCRATCH_NBYTES + 17 * 2**20
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].device.type == DEVICE.type
        nan = tensor.isnan()
        assert found[name].cpu().isnan().equal(nan)
        assert bits(found[name].cpu().masked_fill(nan, 0)).equal(bits(tensor.masked_fill(nan, 0)))


@pytest.mark.parametrize("name", DEQUANTIZED)
def test_numbers_in_ggmls_blocks_have_the_same_bits(name: str) -> None:
    blocks = octets(3000, GGML_TYPES_BY_NAME[name].block_nbytes)
    expected = torch.from_numpy(dequantize_blocks(name, blocks.reshape(-1)))

    found = dequantize_by(TorchArithmetic(DEVICE), name, torch.from_numpy(blocks).to(DEVICE)).cpu()

    assert found.isnan().equal(expected.isnan())
    assert bits(found.nan_to_num()).equal(bits(expected.nan_to_num()))


def test_results_what_is_stored_and_the_work_must_fit(tmp_path: Path) -> None:
    path = saved(tmp_path / "quantized", "awq")
    stored = sum(array.nbytes for array in layouts()["awq"][0].values())
    needed = 2 * SIZE * SIZE + stored + SCRATCH_NBYTES
    with tensorkeep.staging(device_budget=needed):
        tensorkeep.load(path, framework="torch", device=DEVICE, dequantize="bf16")
    with tensorkeep.staging(device_budget=needed - 1), pytest.raises(LimitError, match="device budget"):
        tensorkeep.load(path, framework="torch", device=DEVICE, dequantize="bf16")


def test_parameters_that_are_views_are_filled_where_they_are(tmp_path: Path) -> None:
    path = saved(tmp_path / "quantized", "awq")
    model = torch.nn.Module()
    model.w = torch.nn.Module()
    model.w.weight = torch.nn.Parameter(torch.zeros(SIZE, SIZE, device=DEVICE).T)
    pointer = model.w.weight.data_ptr()
    with tensorkeep.open(path) as opened:
        expected = dequantize(opened, "bf16").load()["w.weight"].astype(np.float32)
        tensorkeep.torch.load_into(model, dequantize(opened, "bf16"))
    assert model.w.weight.detach().cpu().equal(torch.from_numpy(expected))

    tensorkeep.save({"w.weight": expected.astype(ml_dtypes.bfloat16) + 1}, tmp_path / "plain.safetensors")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    tensorkeep.torch.load_into(model, tmp_path / "plain.safetensors")
    assert torch.cuda.max_memory_allocated() - before <= 17 * 2**20
    plain = (expected.astype(ml_dtypes.bfloat16) + 1).astype(np.float32)
    assert model.w.weight.detach().cpu().equal(torch.from_numpy(plain))
    assert (model.w.weight.data_ptr(), model.w.weight.stride()) == (pointer, (1, SIZE))
