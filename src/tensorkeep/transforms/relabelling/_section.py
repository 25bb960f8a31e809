"""What `config.json` says of NVFP4, in the form of each library. Pure."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.tensors import LazyTensors
from tensorkeep.transforms._configs import Config, ConfigChange
from tensorkeep.transforms.relabelling._names import NVFP4_LAYOUTS, Nvfp4Layout

_NUMBERS: Final = {"num_bits": 4, "type": "float", "group_size": 16}
_CACHE: Final = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}


def nvfp4_in_config(to: Nvfp4Layout) -> ConfigChange:
    """Return a change that describes NVFP4 as another library does, and names the modules that are not quantized.

    For GGUF, which describes tensors itself, `quantization_config` is removed.

    Args:
        to: The layout, as `relabel` takes it.
    """

    def changed(config: Config, _: LazyTensors, after: LazyTensors) -> Config:
        if to == "gguf":
            return {key: value for key, value in config.items() if key != "quantization_config"}
        section = config.get("quantization_config")
        has_cache = isinstance(section, dict) and bool(section.get("kv_cache_scheme") or _cache_of_modelopt(section))
        ending = NVFP4_LAYOUTS[to].endings
        has_inputs = any(name.endswith(f".{ending['input_scale']}") for name in after)
        ignored = _plain_modules(after)
        describe = _of_compressed_tensors if to == "compressed-tensors" else _of_modelopt
        return {**config, "quantization_config": describe(ignored, has_inputs=has_inputs, has_cache=has_cache)}

    return changed


def _cache_of_modelopt(section: dict[str, Any]) -> bool:
    inner = section.get("quantization")
    return (inner if isinstance(inner, dict) else section).get("kv_cache_quant_algo") == "FP8"


def _plain_modules(tensors: LazyTensors) -> list[str]:
    """Return the modules whose matrices are numbers as they are."""
    return [
        name.removesuffix(".weight")
        for name, lazy in tensors.items()
        if name.endswith(".weight") and lazy.ndim == 2 and lazy.dtype in {"BF16", "F16", "F32"}
    ]


def _of_compressed_tensors(ignored: list[str], *, has_inputs: bool, has_cache: bool) -> Config:
    numbers = {**_NUMBERS, "symmetric": True, "strategy": "tensor_group"}
    return {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "format": "nvfp4-pack-quantized",
                "weights": {**numbers, "dynamic": False},
                "input_activations": {**numbers, "dynamic": "local"} if has_inputs else None,
                "output_activations": None,
            }
        },
        "ignore": ignored,
        "kv_cache_scheme": _CACHE if has_cache else None,
    }


def _of_modelopt(ignored: list[str], *, has_inputs: bool, has_cache: bool) -> Config:
    group = {"weights": {**_NUMBERS, "dynamic": False}, "targets": ["Linear"]}
    return {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4" if has_inputs else "W4A16_NVFP4",
        "config_groups": {
            "group_0": {**group, "input_activations": {**_NUMBERS, "dynamic": False}} if has_inputs else group
        },
        "ignore": ignored,
        **({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}} if has_cache else {}),
    }
