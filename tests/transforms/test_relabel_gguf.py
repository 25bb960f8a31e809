"""NVFP4 in GGUF's blocks: the numbers that the gguf package computes, and the way back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import DtypeError, FormatError, RefusedError, TensorkeepError, TensorNotFoundError
from tensorkeep.quantized import dequantize
from tensorkeep.transforms import relabel

MATRIX, EXPERTS, PLAIN = "blk.0.ffn_up", "blk.0.ffn_up_exps", "blk.1.ffn_up"
ENDINGS = {
    "modelopt": ("", "_scale", "_scale_2", "input_scale"),
    "compressed-tensors": ("_packed", "_scale", "_global_scale", "input_global_scale"),
}


def scales(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(1).integers(0, 0x7F, shape, np.uint8).view(ml_dtypes.float8_e4m3fn)


def model(layout: str = "modelopt") -> dict[str, Any]:
    data, of_blocks, of_all, of_inputs = ENDINGS[layout]
    random = np.random.default_rng(0)
    shaped = (1,) if layout == "compressed-tensors" else ()
    tensors: dict[str, Any] = {"norm.weight": np.ones(8, np.float32)}
    for module, rows, scale in ((MATRIX, (24, 128), 0.0123), (EXPERTS, (3, 8, 64), None), (PLAIN, (2, 64), 1)):
        *before, n = rows
        tensors |= {
            f"{module}.weight{data}": random.integers(0, 256, (*before, n // 2), np.uint8),
            f"{module}.weight{of_blocks}": scales(*before, n // 16),
            f"{module}.weight{of_all}": np.array([0.1, 1, 1.7], np.float32)
            if scale is None
            else np.full(shaped, scale, np.float32),
        }
    return {**tensors, f"{MATRIX}.{of_inputs}": np.full(shaped, 0.7, np.float32)}


@pytest.mark.parametrize("layout", list(ENDINGS))
def test_gguf_and_back(tmp_path: Path, layout: Any) -> None:
    source, blocks, back = (str(tmp_path / name) for name in ("source", "blocks", "back"))
    tensorkeep.save_checkpoint(model(layout), source, metadata={"general.architecture": "llama"})
    config = {"model_type": "llama", "quantization_config": {"quant_method": layout}}
    (tmp_path / "source" / "config.json").write_text(json.dumps(config))
    assert main(["transform", "relabel", source, "-o", blocks, "--to", "gguf"]) == 0
    assert json.loads((tmp_path / "blocks" / "config.json").read_text()) == {"model_type": "llama"}
    assert main(["export", blocks, str(tmp_path / "m.gguf")]) == 0

    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert reader.fields["general.architecture"].contents() == "llama"
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert f"{PLAIN}.scale" not in stored  # it is 1, which llama.cpp leaves out
    with tensorkeep.open(source) as file:
        numbers = dequantize(file, "f32")
        for module in (MATRIX, EXPERTS, PLAIN):
            tensor = stored[f"{module}.weight"]
            assert tensor.tensor_type == gguf.GGMLQuantizationType.NVFP4
            scale = stored[f"{module}.scale"].data if f"{module}.scale" in stored else np.float32(1)
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = values * scale.reshape(-1, *(1,) * (values.ndim - 1))
            assert np.allclose(values, numbers[f"{module}.weight"].load(), rtol=2**-22, atol=0)
            assert (values == numbers[f"{module}.weight"].load()).mean() > 0.5
    is_divided = layout == "compressed-tensors"
    assert stored[f"{MATRIX}.input_scale"].data == (1 / np.float32(0.7) if is_divided else np.float32(0.7))

    assert main(["transform", "relabel", str(tmp_path / "m.gguf"), "-o", back, "--to", layout]) == 0
    diff = tensorkeep.diff(source, back)
    assert diff.is_equal, diff


@pytest.mark.parametrize("layout", list(ENDINGS))
def test_files_of_llama_cpp_and_back(tmp_path: Path, layout: Any) -> None:
    file = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    blocks = np.random.default_rng(0).integers(0, 256, (4, 2, 36), np.uint8)
    blocks[..., :4] %= 0x7F
    for number in range(2):
        writer.add_tensor(f"blk.{number}.weight", blocks.reshape(4, 72), raw_dtype=gguf.GGMLQuantizationType.NVFP4)
    writer.add_tensor("blk.1.scale", np.array([np.sqrt(2)], np.float32))
    writer.add_tensor("norm.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for source, to, there in ((file, layout, "b"), (tmp_path / "b", "gguf", "c")):
        assert main(["transform", "relabel", str(source), "-o", str(tmp_path / there), "--to", to]) == 0
    tensorkeep.export(tmp_path / "c", tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == file.read_bytes()


def test_a_way_over_all_three(tmp_path: Path) -> None:
    original = model()
    original[f"{PLAIN}.weight_scale_2"] = np.array([[1]], np.float32)  # a shape that the others do not have
    original[f"{MATRIX}.weight_scale_2"] = np.array(np.sqrt(np.float32(2)))  # the reciprocal of no F32
    tensorkeep.save(original, tmp_path / "0.safetensors")
    for number, to in enumerate(("compressed-tensors", "gguf", "compressed-tensors", "modelopt")):
        with tensorkeep.open(tmp_path / f"{number}.safetensors") as file:
            tensorkeep.save(relabel(file, to), tmp_path / f"{number + 1}.safetensors")  # type: ignore[arg-type]
    stored = tensorkeep.load(tmp_path / "4.safetensors", framework="numpy")
    for name, tensor in original.items():
        assert stored[name].tobytes() == tensor.tobytes(), name


@pytest.mark.parametrize("scale", [0x7F, 0x80, 0x81, 0xFF])
def test_scales_that_others_read_differently(tmp_path: Path, scale: int) -> None:
    odd = np.zeros((2, 4), np.uint8)
    odd[1, 2] = scale
    tensors = {**model(), f"{PLAIN}.weight_scale": odd.view(ml_dtypes.float8_e4m3fn)}
    tensorkeep.save(tensors, tmp_path / "m.safetensors")
    refused = f"a scale of tensor `{PLAIN}.weight` has no equal"
    with tensorkeep.open(tmp_path / "m.safetensors") as file, pytest.raises(RefusedError, match=refused):
        tensorkeep.save(relabel(file, "gguf"), tmp_path / "new.safetensors")
    assert not (tmp_path / "new.safetensors").exists()

    blocks = np.zeros((2, 36), np.uint8)
    blocks[1, 3] = scale
    metadata = {"tensorkeep.gguf": '{"tensors": {"w": ["NVFP4", [2, 64]]}}'}
    tensorkeep.save({"w": blocks}, tmp_path / "g.safetensors", metadata=metadata)
    with tensorkeep.open(tmp_path / "g.safetensors") as file, pytest.raises(RefusedError, match="no equal"):
        relabel(file, "modelopt")["w_scale"].load()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {f"{PLAIN}.weight": np.zeros((2, 24), np.uint8), f"{PLAIN}.weight_scale": scales(2, 3)},
            "not whole blocks of GGUF",
        ),
        ({f"{MATRIX}.weight_scale_2": np.ones(24, np.float32)}, "more scales than GGUF"),
        ({f"{MATRIX}.scale": np.ones(1, np.float32)}, "two tensors would be called"),
        ({f"{PLAIN}.scale": np.ones(1, np.float32)}, "would be taken for the scale of another"),
        ({f"{PLAIN}.input_scale": np.ones(1, np.float64)}, "not a scale in F32"),
    ],
)
def test_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    tensorkeep.save({**model(), **changed}, tmp_path / "m.safetensors")
    with tensorkeep.open(tmp_path / "m.safetensors") as file, pytest.raises(TensorkeepError, match=message):
        relabel(file, "gguf")


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ("[", FormatError),
        ('{"tensors": {"w": ["NVFP4", [2, 128]]}}', TensorNotFoundError),
        ('{"tensors": {"w": ["NVFP4", [2, -64]]}}', TensorNotFoundError),
        ('{"tensors": {"w": ["NVFP4", []]}}', TensorNotFoundError),
        ('{"tensors": {"w": ["X", [2, 64]]}}', TensorNotFoundError),
        ('{"tensors": {"w": ["NVFP4", [2, 64]], "v": ["Q8_0", [32]]}}', RefusedError),
    ],
)
def test_hostile_records(tmp_path: Path, record: str, error: type[Exception]) -> None:
    tensors = {"w": np.zeros((2, 36), np.uint8), "v": np.zeros(34, np.uint8)}
    tensorkeep.save(tensors, tmp_path / "g.safetensors", metadata={"tensorkeep.gguf": record})
    with tensorkeep.open(tmp_path / "g.safetensors") as file, pytest.raises(error):
        relabel(file, "modelopt")


def test_export_says_how(tmp_path: Path) -> None:
    tensorkeep.save(model(), tmp_path / "m.safetensors")
    with pytest.raises(DtypeError, match="scales of NVFP4, relabel it first"):
        tensorkeep.export(tmp_path / "m.safetensors", tmp_path / "m.gguf")


def test_no_rows(tmp_path: Path) -> None:
    tensors = {"w": np.zeros((0, 32), np.uint8), "w_scale": scales(0, 4), "w_scale_2": np.array(2, np.float32)}
    tensorkeep.save(tensors, tmp_path / "m.safetensors")
    with tensorkeep.open(tmp_path / "m.safetensors") as file:
        tensorkeep.save(relabel(file, "gguf"), tmp_path / "g.safetensors")
    with tensorkeep.open(tmp_path / "g.safetensors") as file:
        assert relabel(file, "modelopt")["w"].load().shape == (0, 32)
        assert relabel(file, "modelopt")["w_scale"].load().shape == (0, 4)
