"""`check` of quantized checkpoints: nothing about those that libraries wrote, and a name for what is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.checking import CheckReport

ATTENTION = "model.layers.0.self_attn"
MODULE = "model.layers.0.mlp.up_proj"


def test_checkpoints_of_the_libraries_make_sense(written: Path) -> None:
    paths = sorted(written.iterdir())
    found = {path.name: tensorkeep.check(path / "model.safetensors", data=True).findings for path in paths}

    assert len(paths) > 40
    assert {name: findings for name, findings in found.items() if findings} == {}


@pytest.fixture
def nvfp4(tmp_path: Path) -> Path:
    """Return a directory with the configuration of ModelOpt's NVFP4, with fixed scales of inputs and cache."""
    group = {
        "targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False},
        "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False},
    }
    cache = {"num_bits": 8, "type": "float", "dynamic": False}
    method = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    quantization = {**method, "config_groups": {"group_0": group}, "kv_cache_scheme": cache}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    return tmp_path


def one(value: float) -> Any:
    return np.array(value, np.float32)


def weights(**changed: Any) -> dict[str, Any]:
    """Return an attention, with tensors replaced by the ends of their names; None leaves one out."""
    state: dict[str, Any] = {}
    for which in "kv":
        state |= {
            f"{ATTENTION}.{which}_proj.weight": np.full((8, 16), 0x21, np.uint8),
            f"{ATTENTION}.{which}_proj.weight_scale": np.full((8, 2), 1.5, "float8_e4m3fn"),
            f"{ATTENTION}.{which}_proj.weight_scale_2": one(2e-4),
            f"{ATTENTION}.{which}_proj.input_scale": one(0.01),
            f"{ATTENTION}.{which}_proj.bias": np.ones(8, np.float32),
            f"{ATTENTION}.{which}_proj.{which}_scale": one(0.5),
        }
    state |= {name: changed[name.rpartition(".")[2]] for name in state if name.rpartition(".")[2] in changed}
    return {name: value for name, value in state.items() if value is not None}


def checked(path: Path, state: Any) -> CheckReport:
    tensorkeep.save(state, path / "model.safetensors")
    return tensorkeep.check(path, data=True)


def test_a_sound_one_makes_sense(nvfp4: Path) -> None:
    assert checked(nvfp4, weights()).findings == ()


@pytest.mark.parametrize(
    ("changed", "code", "severity", "names"),
    [
        ({"input_scale": None}, "quantized-activations", "error", ("k_proj.weight", "v_proj.weight")),
        ({"k_scale": None, "v_scale": None}, "quantized-activations", "warning", ()),
        ({"weight_scale_2": np.array(1, np.int32)}, "quantized-contradiction", "error", ("k_proj.weight",)),
        ({"input_scale": np.array(1, np.int32)}, "quantized-contradiction", "error", ("k_proj.input_scale",)),
        ({"weight_scale_2": one(5000)}, "quantized-reciprocal", "error", ("k_proj.weight_scale_2",)),
        ({"weight_scale_2": one(0)}, "quantized-scale", "error", ("k_proj.weight_scale_2",)),
        ({"weight_scale_2": one(-2e-4)}, "quantized-scale", "error", ("k_proj.weight_scale_2",)),
        ({"weight_scale_2": one(np.nan)}, "nan", "error", ("k_proj.weight_scale_2",)),
        ({"weight_scale_2": one(np.inf)}, "inf", "error", ("k_proj.weight_scale_2",)),
        ({"input_scale": one(0)}, "quantized-scale", "error", ("k_proj.input_scale",)),
        ({"v_scale": one(-1)}, "quantized-scale", "error", ("v_proj.v_scale",)),
        ({"bias": np.ones(9, np.float32)}, "bias-shape", "error", ("k_proj.bias", "v_proj.bias")),
    ],
)
def test_what_is_broken_is_named(
    changed: dict[str, Any], code: str, severity: str, names: tuple[str, ...], nvfp4: Path
) -> None:
    report = checked(nvfp4, weights(**changed))

    (finding,) = report.findings
    assert (finding.code, finding.severity) == (code, severity)
    assert set(finding.tensors) >= {f"{ATTENTION}.{name}" for name in names}
    assert not report


def test_the_reciprocal_of_a_divisor(tmp_path: Path) -> None:
    def state(scale: float) -> dict[str, Any]:
        return {
            f"{MODULE}.weight_packed": np.full((8, 16), 0x21, np.uint8),
            f"{MODULE}.weight_scale": np.full((8, 2), 1.5, "float8_e4m3fn"),
            f"{MODULE}.weight_global_scale": np.array([scale], np.float32),
        }

    assert checked(tmp_path, state(5000)).findings == ()
    (finding,) = checked(tmp_path, state(2e-4)).findings
    assert (finding.code, finding.tensors) == ("quantized-reciprocal", (f"{MODULE}.weight_global_scale",))
    assert finding.found == f"0.0002 in `{MODULE}.weight_global_scale`"


def test_reciprocals_of_scales_of_eight_bits(tmp_path: Path) -> None:
    def state(scale: Any) -> dict[str, Any]:
        return {f"{MODULE}.weight": np.ones((8, 16), "float8_e4m3fn"), f"{MODULE}.weight_scale": scale}

    assert checked(tmp_path, state(one(1))).findings == ()
    assert checked(tmp_path, state(np.array([[0.01], [0]] * 4, np.float32))).findings == ()
    assert [each.code for each in checked(tmp_path, state(one(90))).findings] == ["quantized-reciprocal"]
    negative = np.array([[0.01], [-0.01]] * 4, np.float32)
    assert [each.code for each in checked(tmp_path, state(negative)).findings] == ["quantized-scale"]


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "mxfp4", "bitsandbytes", "a later one"])
def test_a_configuration_of_quantized_tensors_beside_plain_ones(method: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method}}))

    report = checked(tmp_path, {f"{MODULE}.weight": np.ones((8, 16), np.float16)})

    is_certain = method not in {"bitsandbytes", "a later one"}  # these quantize plain weights when they are loaded
    assert [finding.code for finding in report.findings] == ["quantized-method"] * is_certain
