"""Writes a small checkpoint in each layout, and the numbers that its own library says it has.

Each case is a directory: `model.safetensors`, `config.json`, and `numbers.safetensors` with what the library computes
in the dtype in which it does so. Libraries: compressed-tensors, torchao, bitsandbytes and transformers. AutoGPTQ and
AutoAWQ do not install beside this version of torch, and ModelOpt needs more than this project has: their packing is
written out here, as they publish it.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

warnings.simplefilter("ignore")
torch.manual_seed(0)
ROOT = Path(sys.argv[1])
NAME = "model.layers.0.mlp.up_proj"


def write(
    case: str,
    tensors: dict[str, torch.Tensor],
    config: dict[str, Any] | None,
    numbers: dict[str, torch.Tensor],
    metadata: dict[str, str] | None = None,
) -> None:
    directory = ROOT / case
    directory.mkdir(parents=True)
    others = {"model.norm.weight": torch.ones(8), "lm_head.weight": torch.randn(4, 8)}
    save_file(
        {name: one.contiguous() for name, one in (tensors | others).items()},
        directory / "model.safetensors",
        metadata,
    )
    save_file({name: one.contiguous() for name, one in numbers.items()}, directory / "numbers.safetensors")
    if config is not None:
        (directory / "config.json").write_text(json.dumps({"quantization_config": config}))


def compressed_tensors() -> None:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    def case(
        name: str, layout: str, shape: tuple[int, ...], scales: tuple[int, ...], dtype: Any, **arguments: Any
    ) -> None:
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        weight = torch.randn(shape).to(dtype)
        state = {"weight": weight, "weight_scale": (torch.rand(scales) / 7 + 0.01).to(dtype)}
        if not args.symmetric:
            state["weight_zero_point"] = torch.randint(-3, 3, scales).to(torch.int8)
        if args.strategy == "tensor_group":
            state["weight_global_scale"] = torch.tensor([1234.5])
            state["weight_scale"] = (torch.rand(scales) * 300 + 1).to(dtype)
        if layout.startswith("mxfp"):
            state["weight_scale"] = 2.0 ** torch.randint(-6, 3, scales)
        compressor = BaseCompressor.get_value_from_registry(layout)
        stored = compressor.compress(state, scheme)
        numbers = compressor.decompress(stored, scheme)["weight"]
        group = json.loads(scheme.model_dump_json())
        config = {
            "quant_method": "compressed-tensors",
            "format": layout,
            "config_groups": {"group_0": group},
            "ignore": ["lm_head"],
        }
        write(name, {f"{NAME}.{key}": one for key, one in stored.items()}, config, {f"{NAME}.weight": numbers})

    for bits in (2, 3, 4, 5, 8):
        group = {"num_bits": bits, "group_size": 32, "strategy": "group"}
        case(f"packed {bits} bits", "pack-quantized", (64, 128), (64, 4), torch.bfloat16, **group)
        case(
            f"packed {bits} bits, zeros", "pack-quantized", (40, 96), (40, 3), torch.float16, symmetric=False, **group
        )
    case("packed channels", "pack-quantized", (16, 50), (16, 1), torch.float32, num_bits=4, strategy="channel")
    case("packed whole", "pack-quantized", (16, 64), (1,), torch.float32, num_bits=4, strategy="tensor")
    case("int8 channels", "int-quantized", (48, 20), (48, 1), torch.bfloat16, num_bits=8, strategy="channel")
    case(
        "int8 zeros",
        "int-quantized",
        (48, 20),
        (48, 1),
        torch.float16,
        num_bits=8,
        strategy="channel",
        symmetric=False,
    )
    case("fp8 whole", "float-quantized", (48, 20), (1,), torch.bfloat16, num_bits=8, type="float", strategy="tensor")
    case(
        "fp8 channels",
        "float-quantized",
        (48, 20),
        (48, 1),
        torch.float32,
        num_bits=8,
        type="float",
        strategy="channel",
    )
    block = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 8]}
    case("fp8 blocks", "float-quantized", (48, 20), (3, 3), torch.bfloat16, **block)
    float4 = {"num_bits": 4, "type": "float"}
    case(
        "nvfp4",
        "nvfp4-pack-quantized",
        (24, 64),
        (24, 4),
        torch.bfloat16,
        group_size=16,
        strategy="tensor_group",
        **float4,
    )
    case(
        "mxfp4 rows",
        "mxfp4-pack-quantized",
        (24, 64),
        (24, 2),
        torch.bfloat16,
        group_size=32,
        strategy="group",
        **float4,
    )
    case("mxfp8", "mxfp8-quantized", (24, 64), (24, 2), torch.bfloat16, num_bits=8, type="float", group_size=32,
         strategy="group", scale_dtype=torch.uint8)  # fmt: skip


def of_bitsandbytes() -> None:
    import bitsandbytes.functional as bnb

    for form in ("nf4", "fp4"):
        for is_nested in (False, True):
            for storage in (torch.uint8, torch.bfloat16):
                weight = torch.randn(96, 200).to(torch.bfloat16)
                packed, state = bnb.quantize_4bit(
                    weight, blocksize=64, compress_statistics=is_nested, quant_type=form, quant_storage=storage
                )
                parts = {f"{NAME}.weight.{key}": one for key, one in state.as_dict(packed=True).items()}
                numbers = bnb.dequantize_4bit(packed, state)
                config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["lm_head"]}
                case = f"{form} {'nested ' if is_nested else ''}in {str(storage).removeprefix('torch.')}"
                write(case, {f"{NAME}.weight": packed, **parts}, config, {f"{NAME}.weight": numbers})
    rows, magnitudes, _ = bnb.int8_vectorwise_quant(torch.randn(30, 40).to(torch.float16))
    tensors = {
        f"{NAME}.weight": rows,
        f"{NAME}.SCB": magnitudes,
        f"{NAME}.weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    numbers = bnb.int8_vectorwise_dequant(rows, magnitudes)
    write("llm int8", tensors, {"quant_method": "bitsandbytes", "load_in_8bit": True}, {f"{NAME}.weight": numbers})


def of_torchao() -> None:
    import torchao.quantization as ao
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    configs = {
        "ao int8": ao.Int8WeightOnlyConfig(version=2),
        "ao int8 groups": ao.Int8WeightOnlyConfig(version=2, granularity=ao.PerGroup(16)),
        "ao float8": ao.Float8WeightOnlyConfig(),
        "ao intx": ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
        "ao intx zeros": ao.IntxWeightOnlyConfig(
            weight_dtype=torch.int3, granularity=ao.PerGroup(32), mapping_type=ao.MappingType.ASYMMETRIC
        ),
    }
    for case, config in configs.items():
        model = torch.nn.Linear(64, 48, dtype=torch.bfloat16)
        ao.quantize_(model, config)
        tensors, metadata = flatten_tensor_state_dict({f"{NAME}.weight": model.weight})
        write(case, tensors, {"quant_method": "torchao"}, {f"{NAME}.weight": model.weight.dequantize()}, metadata)


def of_transformers() -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks = torch.randint(0, 256, (3, 20, 4, 16), dtype=torch.uint8)
    scales = torch.randint(110, 135, (3, 20, 4), dtype=torch.uint8)
    numbers = convert_moe_packed_tensors(blocks, scales)
    experts = "model.layers.0.mlp.experts.gate_up_proj"
    config = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head", "model.layers.*.self_attn"]}
    write("mxfp4 experts", {f"{experts}_blocks": blocks, f"{experts}_scales": scales}, config, {experts: numbers})
    weight = torch.randn(256, 384).to(torch.float8_e4m3fn)
    inverse = torch.rand(2, 3)
    numbers = Fp8Dequantize(None)._dequantize_one(weight, inverse, torch.bfloat16)
    tensors = {f"{NAME}.weight": weight, f"{NAME}.weight_scale_inv": inverse}
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
    write("deepseek", tensors, config, {f"{NAME}.weight": numbers})
    experts = {"model.experts.up": torch.randn(2, 256, 128).to(torch.float8_e4m3fn)}
    scales = {"model.experts.up_scale_inv": torch.rand(2, 2, 1)}
    numbers = Fp8Dequantize(None)._dequantize_one(
        experts["model.experts.up"], scales["model.experts.up_scale_inv"], torch.bfloat16
    )
    write("deepseek experts", experts | scales, config, {"model.experts.up": numbers})


def packed_columns(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack rows of small numbers into rows of words, 32 numbers in `bits` words, lowest bits first."""
    stream = (values[..., None] >> torch.arange(bits)) & 1
    words = stream.reshape(values.shape[0], -1, 32)
    return (words.to(torch.int64) << torch.arange(32)).sum(-1).to(torch.int32)


def of_autogptq() -> None:
    """`scales[g_idx] * (qweight - (qzeros + 1))`, as `QuantLinear.forward` of AutoGPTQ computes it."""
    for bits in (2, 3, 4, 8):
        for form in ("gptq", "gptq_v2"):
            for is_shuffled in (False, True):
                n_in, n_out, size = 128, 64, 32
                values = torch.randint(0, 2**bits, (n_in, n_out))
                zeros = torch.randint(1, 2**bits, (n_in // size, n_out))
                scales = (torch.rand(n_in // size, n_out) / 9 + 0.01).to(torch.float16)
                order = torch.arange(n_in) // size
                order = (order[torch.randperm(n_in)] if is_shuffled else order).to(torch.int32)
                stored = zeros - 1 if form == "gptq" else zeros
                tensors = {
                    f"{NAME}.qweight": packed_columns(values.T, bits).T,
                    f"{NAME}.qzeros": packed_columns(stored, bits),
                    f"{NAME}.scales": scales,
                    f"{NAME}.g_idx": order,
                }
                numbers = (scales[order] * (values - zeros[order]).to(torch.float16)).T
                config = {
                    "quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": is_shuffled,
                    "checkpoint_format": form, "modules_in_block_to_quantize": None,
                }  # fmt: skip
                case = f"{form} {bits} bits{', act order' if is_shuffled else ''}"
                write(case, tensors, config, {f"{NAME}.weight": numbers})


def of_autoawq() -> None:
    """`dequantize_gemm` of AutoAWQ; numbers are packed in the order 0, 2, 4, 6, 1, 3, 5, 7."""
    n_in, n_out, size = 128, 64, 32
    values, zeros = torch.randint(0, 16, (n_in, n_out)), torch.randint(0, 16, (n_in // size, n_out))
    scales = (torch.rand(n_in // size, n_out) / 9 + 0.01).to(torch.float16)

    def packed(given: torch.Tensor) -> torch.Tensor:
        eights = given.reshape(given.shape[0], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
        return (eights.to(torch.int64) << (4 * torch.arange(8))).sum(-1).to(torch.int32)

    tensors = {f"{NAME}.qweight": packed(values), f"{NAME}.qzeros": packed(zeros), f"{NAME}.scales": scales}
    differences = values - zeros.repeat_interleave(size, 0)
    numbers = (differences.to(torch.int8) * scales.repeat_interleave(size, 0)).T
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm", "zero_point": True}
    write("awq", tensors, config, {f"{NAME}.weight": numbers})


def of_modelopt() -> None:
    """`NVFP4QTensor.dequantize` of ModelOpt, and its F8 with one scale."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed = torch.randint(0, 256, (24, 32), dtype=torch.uint8)
    scales = (torch.rand(24, 4) * 400 + 1).to(torch.float8_e4m3fn)
    scale = torch.tensor(0.00037)
    places = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(24, 4, 16).long()
    numbers = (table[places] * (scales.to(torch.float32) * scale)[..., None]).reshape(24, 64)
    tensors = {f"{NAME}.weight": packed, f"{NAME}.weight_scale": scales, f"{NAME}.weight_scale_2": scale}
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head*"]}
    write("modelopt nvfp4", tensors | {f"{NAME}.input_scale": torch.tensor(0.1)}, config, {f"{NAME}.weight": numbers})
    weight, scale = torch.randn(24, 64).to(torch.float8_e4m3fn), torch.tensor(0.02)
    tensors = {f"{NAME}.weight": weight, f"{NAME}.weight_scale": scale, f"{NAME}.input_scale": torch.tensor(0.1)}
    write("modelopt fp8", tensors, None, {f"{NAME}.weight": weight.to(torch.float32) * scale})
    other = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head*"]}}
    (ROOT / "modelopt fp8" / "hf_quant_config.json").write_text(json.dumps(other))


if __name__ == "__main__":
    compressed_tensors()
    of_bitsandbytes()
    of_torchao()
    of_transformers()
    of_autogptq()
    of_autoawq()
    of_modelopt()
