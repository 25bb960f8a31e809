"""Quantized tensors are not taken for weights by what computes with numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep import LazyTensors
from tensorkeep.errors import RefusedError
from tensorkeep.merging import add_lora, average, dare, dare_ties, ema, extract_lora, slerp, task_arithmetic, ties
from tensorkeep.transforms import KeyMap, resize_vocabulary, sparsify

NAME = "embed_tokens.weight"

F8 = torch.float8_e4m3fn


def scaled(value: float, scale: float, ending: str = "_scale") -> dict[str, torch.Tensor]:
    """Return an embedding of 16 rows in F8 whose numbers are the value times the scale, and a plain norm."""
    shape = (16, 1) if ending == "_scale" else (1, 1)
    return {
        NAME: torch.full((16, 32), float(value)).to(F8),
        NAME + ending: torch.full(shape, float(scale)),
        "norm.weight": torch.full((32,), float(value)),
    }


@pytest.fixture(params=["_scale", "_scale_inv"])
def files(request: pytest.FixtureRequest) -> list[LazyTensors]:
    models = scaled(1, 1, request.param), scaled(2, 3, request.param)
    return [tensorkeep.open(tensorkeep.torch.save(model), framework="torch") for model in models]


LORA = {
    "base_model.model.embed_tokens.lora_embedding_A": torch.ones(1, 16),
    "base_model.model.embed_tokens.lora_embedding_B": torch.ones(32, 1),
}

WAYS: dict[str, Callable[[LazyTensors, LazyTensors], Any]] = {
    "average": average,
    "ema": lambda a, b: ema(a, b, decay=0.5),
    "slerp": lambda a, b: slerp(a, b, 0.5),
    "task_arithmetic": task_arithmetic,
    "ties": lambda a, b: ties(a, b, density=0.5),
    "dare": lambda a, b: dare(a, b, density=0.5, seed=0),
    "dare_ties": lambda a, b: dare_ties(a, b, density=0.5, seed=0),
    "add_lora": lambda a, _: add_lora(
        a, tensorkeep.open(tensorkeep.torch.save(LORA)), settings={"peft_type": "LORA", "r": 1, "lora_alpha": 1}
    ),
    "sparsify": lambda a, _: sparsify(a, keep="2:4", names=NAME),
    "resize_vocabulary": lambda a, _: resize_vocabulary(a, 20),
    "split": lambda a, _: KeyMap.parse(
        'others = "keep"\n[[rules]]\nfrom = "embed_tokens.weight"\nto = ["a", "b"]\n'
    ).apply(a),
}


@pytest.mark.parametrize("way", WAYS)
def test_numbers_without_their_scales_are_refused(way: str, files: list[LazyTensors]) -> None:
    with pytest.raises(RefusedError, match=f"`{NAME}` is quantized.*quantized.dequantize"):
        WAYS[way](*files)


def test_dequantized_models_are_averaged(files: list[LazyTensors]) -> None:
    mean = average(*(tensorkeep.quantized.dequantize(file, "f32") for file in files))

    assert mean[NAME].load().unique().tolist() == [3.5]
    assert mean["norm.weight"].load().unique().tolist() == [1.5]


def test_tensors_that_are_not_quantized_still_change(files: list[LazyTensors]) -> None:
    norms = sparsify(files[0], zeros=0.5, names="norm.weight")
    averaged = average(*(file.select("norm.weight") for file in files))

    assert norms["norm.weight"].load().sum() == 16
    assert averaged["norm.weight"].load().unique().tolist() == [1.5]


def test_plain_numbers_in_f8_are_weights() -> None:
    files = [tensorkeep.open(tensorkeep.torch.save({"x": torch.full((2,), value).to(F8)})) for value in (1.0, 2.0)]

    assert average(*files)["x"].load().astype(float).tolist() == [1.5, 1.5]


def test_no_adapter_is_extracted_from_quantized_models(tmp_path: Path, files: list[LazyTensors]) -> None:
    with pytest.raises(RefusedError, match=f"`{NAME}` is quantized"):
        extract_lora(*files, tmp_path / "adapter", rank=1)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [tensorkeep.reshard, tensorkeep.convert])
def test_a_cast_does_not_drop_scales(tmp_path: Path, write: Callable[..., None]) -> None:
    tensorkeep.save(scaled(2, 3), tmp_path / "model.safetensors")

    with pytest.raises(RefusedError, match="is quantized"):
        write(tmp_path / "model.safetensors", tmp_path / "new", cast="bf16")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]

    tensorkeep.convert(tmp_path / "model.safetensors", tmp_path / "new.safetensors", dequantize="f32", cast="bf16")
    assert tensorkeep.load(tmp_path / "new.safetensors", framework="torch")[NAME].unique().tolist() == [6.0]
