"""NVFP4 under another library's names: what that library reads, and the way back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from numpy.typing import NDArray

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import RefusedError, TensorkeepError, TensorNotFoundError
from tensorkeep.quantized import dequantize, layouts
from tensorkeep.transforms import relabel

MODULES = ("model.layers.0.up_proj", "model.layers.1.up_proj", "model.layers.2.up_proj")
SCALES = np.array([0.00037, np.sqrt(2, dtype=np.float32), 1.7], np.float32)


def one(number: float) -> NDArray[np.float32]:
    return np.array(number, np.float32)


def modelopt(path: Path, **changed: Any) -> Path:
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        "model.norm.weight": np.ones(8, np.float32),
        "lm_head.weight": np.ones((4, 8), np.float32),
    }
    for module, scale in zip(MODULES, SCALES, strict=True):
        tensors |= {
            f"{module}.weight": random.integers(0, 256, (24, 32), np.uint8),
            f"{module}.weight_scale": (random.random((24, 4)) * 400 + 1).astype(ml_dtypes.float8_e4m3fn),
            f"{module}.weight_scale_2": one(scale),
            f"{module}.input_scale": one(scale / 3),
        }
    path.mkdir()
    tensorkeep.save({**tensors, **changed}, path / "model.safetensors", metadata={"kept": "yes"})
    config = {"model_type": "llama", "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    config["quantization_config"] |= {"ignore": ["lm_head*"], "kv_cache_quant_algo": "FP8"}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_compressed_tensors_reads_it(tmp_path: Path) -> None:
    source = modelopt(tmp_path / "opt")
    there, back = str(tmp_path / "ct"), str(tmp_path / "back")
    assert main(["transform", "relabel", str(source), "-o", there, "--to", "compressed-tensors"]) == 0

    config = json.loads((tmp_path / "ct" / "config.json").read_text())["quantization_config"]
    scheme = QuantizationConfig.model_validate(config).config_groups["group_0"]
    assert config["ignore"] == ["lm_head"]
    assert config["kv_cache_scheme"]["num_bits"] == 8
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    stored = tensorkeep.load(there, framework="torch")
    with tensorkeep.open(source) as before, tensorkeep.open(there) as after:
        assert not layouts(after).findings
        numbers, same = dequantize(before, "f32"), dequantize(after, "f32")
        for module in MODULES:
            names = ("weight_packed", "weight_scale", "weight_global_scale")
            state = {name: stored[f"{module}.{name}"] for name in names}
            assert state["weight_global_scale"].shape == (1,)
            decompressed = compressor.decompress(state, scheme)["weight"].float()
            name = f"{module}.weight"
            assert torch.allclose(decompressed, torch.from_numpy(numbers[name].load()), rtol=2**-7)
            assert np.allclose(same[name].load(), numbers[name].load(), rtol=1e-6)
            assert after[f"{name}_packed"].digest == before[name].digest  # copied

    assert main(["transform", "relabel", there, "-o", back, "--to", "modelopt"]) == 0
    diff = tensorkeep.diff(source, back)
    assert diff.is_equal, diff
    with tensorkeep.open(back) as file:
        assert not layouts(file).findings
        assert file.metadata["kept"] == "yes"


@pytest.mark.parametrize("to", ["compressed-tensors", "modelopt"])
def test_every_scale_has_a_way_back(tmp_path: Path, to: Any) -> None:
    exponents = np.random.default_rng(1).integers(-120, 120, 400)
    scales = (1 + np.random.default_rng(2).random(400)).astype(np.float32) * np.exp2(exponents).astype(np.float32)
    other = np.zeros((1, 8), np.uint8), np.zeros((1, 1), ml_dtypes.float8_e4m3fn)
    names = ("", "_scale", "_scale_2") if to == "compressed-tensors" else ("_packed", "_scale", "_global_scale")
    tensors: dict[str, Any] = {}
    for number, scale in enumerate(scales):
        shaped = scale if number % 3 else np.array([[scale]])  # a shape that the other layout does not have
        values = (*other, np.array(shaped, np.float32))
        tensors |= {f"{number}.weight{end}": value for end, value in zip(names, values, strict=True)}
    tensorkeep.save(tensors, tmp_path / "all.safetensors")
    back: Any = "modelopt" if to == "compressed-tensors" else "compressed-tensors"
    with tensorkeep.open(tmp_path / "all.safetensors") as file:
        there = relabel(file, to)
        tensorkeep.save(there, tmp_path / "there.safetensors")
        with tensorkeep.open(tmp_path / "there.safetensors") as saved:
            again = relabel(saved, back)
            assert "nvfp4_scales" in saved.metadata
            assert "nvfp4_scales" not in again.metadata
            for name, tensor in tensors.items():
                assert again[name].shape == tensor.shape
                assert again[name].load().tobytes() == tensor.tobytes(), name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({f"{MODULES[0]}.weight_scale_2": one(0)}, "has no reciprocal"),
        ({f"{MODULES[0]}.weight_scale_2": one(np.nan)}, "has no reciprocal"),
        ({f"{MODULES[0]}.input_scale": one(1e-45)}, "has no reciprocal"),
        ({f"{MODULES[0]}.weight_scale_2": np.array(1.0)}, "not a scale in F32"),
        ({f"{MODULES[0]}.weight_scale": np.ones((24, 3), ml_dtypes.float8_e4m3fn)}, "do not fit its shape"),
        ({f"{MODULES[0]}.weight_packed": np.ones(3, np.uint8)}, "would be called|no scale|do not fit|scale of all"),
        (
            {"o.weight": np.ones((4, 4), ml_dtypes.float8_e4m3fn), "o.weight_scale": one(1)},
            "cannot be relabelled",
        ),
    ],
)
def test_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with (
        tensorkeep.open(modelopt(tmp_path / "opt", **changed)) as file,
        pytest.raises(TensorkeepError, match=message),
    ):
        relabel(file, "compressed-tensors")


def test_what_is_already_so_and_no_such_layout(tmp_path: Path) -> None:
    with tensorkeep.open(modelopt(tmp_path / "opt")) as file:
        with pytest.raises(TensorNotFoundError, match="no tensor is in NVFP4 as another library stores it"):
            relabel(file, "modelopt")
        with pytest.raises(RefusedError, match="no such layout"):
            relabel(file, "awq")  # type: ignore[arg-type]


HOSTILE = [
    "[",
    "{}",
    '{"a": 1}',
    '{"X": {"shape": [-3], "bits": "zz"}}',
    '{"X": {"shape": [1], "bits": "00"}}',
    '{"X": {"shape": [1], "bits": "0000803f"}}',
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_metadata(tmp_path: Path, text: str) -> None:
    with tensorkeep.open(modelopt(tmp_path / "opt")) as file:
        view = relabel(file, "compressed-tensors")
        metadata = {"nvfp4_scales": text.replace("X", f"{MODULES[0]}.weight_global_scale")}
        tensorkeep.save(view, tmp_path / "ct.safetensors", metadata=metadata)
        expected = file[f"{MODULES[0]}.weight_scale_2"].load()
    with tensorkeep.open(tmp_path / "ct.safetensors") as file:
        scale = relabel(file, "modelopt")[f"{MODULES[0]}.weight_scale_2"].load()
    assert scale.shape == ()
    assert np.allclose(scale, expected)
