"""Adapters extracted from two checkpoints: peft loads them, and they reproduce the tuned model."""

from __future__ import annotations

import json
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import DestinationExistsError, RefusedError, TensorNotFoundError
from tensorkeep.merging import add_lora, extract_lora
from tests.support.integrations.transformers.tiny_trainers import gpt2


class Net(nn.Module):
    """A layer of each kind that an adapter treats in its own way."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = nn.Embedding(30, 12)
        self.first = nn.ModuleDict({"proj": nn.Linear(12, 9), "norm": nn.LayerNorm(9)})
        self.second = nn.ModuleDict({"proj": nn.Linear(9, 9), "norm": nn.LayerNorm(9)})
        self.head = nn.Linear(9, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(x)
        for layer in (self.first, self.second):
            x = layer["norm"](layer["proj"](x)).tanh()
        return self.head(x)


def trained(model: nn.Module, rank: int, names: tuple[str, ...]) -> nn.Module:
    """Change parameters of these names: matrices by products of a small rank."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(names):
                shape = parameter.shape
                parameter += (
                    torch.randn(shape[0], rank) @ torch.randn(rank, shape[1])
                    if len(shape) == 2
                    else torch.randn(shape)
                )
    return model


def saved(model: nn.Module, path: Path) -> tensorkeep.LazyTensors:
    tensorkeep.save_checkpoint(model.state_dict(), path)
    return tensorkeep.open(path)


def with_peft(model: nn.Module, adapter: Path) -> nn.Module:
    with warnings.catch_warnings(action="error", category=UserWarning):  # peft warns of keys that it does not find
        return peft.PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()


CHANGED = {
    "all": ("weight", "bias"),
    "linear layers": ("proj.weight",),
    "one linear layer": ("second.proj.weight",),
    "an embedding": ("embed_tokens.weight", "first.proj.weight"),
    "a linear layer, another's bias and a norm": ("first.proj.weight", "second.proj.bias", "second.norm.weight"),
    "a weight and its bias": ("first.proj.weight", "first.proj.bias"),
}


@pytest.mark.parametrize("names", CHANGED.values(), ids=CHANGED)
def test_peft_and_add_lora_reproduce_the_tuned_model(names: tuple[str, ...], tmp_path: Path) -> None:
    base, tuned = saved(Net(), tmp_path / "base"), saved(trained(Net(), 3, names), tmp_path / "tuned")

    extracted = extract_lora(base, tuned, tmp_path / "adapter", rank=3)

    assert max(layer.error for layer in extracted.layers) < 1e-6
    again = add_lora(base, tensorkeep.open(tmp_path / "adapter"))
    by_peft = with_peft(Net(), tmp_path / "adapter").state_dict()
    for name, lazy in tuned.items():
        np.testing.assert_allclose(again[name].load(), lazy.load(), atol=1e-5)
        np.testing.assert_allclose(by_peft[name].numpy(), lazy.load(), atol=1e-5)


def test_transposed_layers_of_gpt2(tmp_path: Path) -> None:
    names = ("c_attn.weight", "c_proj.weight", "wte.weight", "ln_f.bias")
    base, tuned = saved(gpt2(), tmp_path / "base"), saved(trained(gpt2(), 2, names), tmp_path / "tuned")
    base, tuned = (each.drop("lm_head.weight") if "lm_head.weight" in each else each for each in (base, tuned))

    extract_lora(base, tuned, tmp_path / "adapter", rank=2, fan_in_fan_out=True)

    by_peft = with_peft(gpt2(), tmp_path / "adapter").state_dict()
    for name, lazy in tuned.items():
        np.testing.assert_allclose(by_peft[name].numpy(), lazy.load(), atol=1e-5)


def matrices(*arrays: Any) -> list[tensorkeep.LazyTensors]:
    return [tensorkeep.open(tensorkeep.numpy.save({"x.weight": array})) for array in arrays]


@pytest.mark.parametrize("shape", [(300, 200), (200, 300)])
def test_the_error_is_that_of_the_exact_decomposition(
    shape: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorkeep.merging.lora._factors._EXACT_LENGTH", 0)
    random = np.random.default_rng(0)
    spectrum = 1 / np.arange(1, 201)  # as slowly as training leaves it
    left, right = (np.linalg.qr(random.standard_normal((n, 200)))[0] for n in shape)
    change = (left * spectrum) @ right.T
    before = random.standard_normal(shape)

    (layer,) = extract_lora(*matrices(before, before + change), tmp_path / "adapter", rank=8).layers

    best = np.linalg.norm(spectrum[8:]) / np.linalg.norm(spectrum)
    assert layer.error == pytest.approx(best, rel=1e-3)
    assert layer.norm == pytest.approx(np.linalg.norm(spectrum))
    a, b = tensorkeep.load(tmp_path / "adapter").values()
    product = b @ a if a.shape[0] == 8 else a @ b
    assert np.linalg.norm(change - product) / np.linalg.norm(change) == pytest.approx(layer.error, rel=1e-3)


def test_memory_is_bounded_and_equal_seeds_give_equal_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    before = random.standard_normal((2000, 1000)).astype(np.float32)
    factors = random.standard_normal((2000, 4)), random.standard_normal((4, 1000))
    for name, array in {"before": before, "after": before + (factors[0] @ factors[1]).astype(np.float32)}.items():
        tensorkeep.save({"x.weight": array}, tmp_path / f"{name}.safetensors")
    opened = [tensorkeep.open(tmp_path / f"{name}.safetensors") for name in ("before", "after")]

    tracemalloc.start()
    (layer,) = extract_lora(*opened, tmp_path / "adapter", rank=4).layers
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert layer.error < 1e-6
    assert peak < 12e6  # the change alone takes 16 MB
    extract_lora(*opened, tmp_path / "again", rank=4)
    names = ("adapter_model.safetensors", "adapter_config.json")
    assert all(
        (tmp_path / "adapter" / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in names
    )


def test_what_cannot_be_extracted_changes_nothing(tmp_path: Path) -> None:
    one, other = np.ones((4, 3)), np.zeros((4, 3))
    adapter = tmp_path / "adapter"
    with pytest.raises(RefusedError, match="no matrix changed"):
        extract_lora(*matrices(one, one), adapter, rank=1)
    with pytest.raises(RefusedError, match="another shape"):
        extract_lora(*matrices(one, np.zeros((5, 3))), adapter, rank=1)
    with pytest.raises(ValueError, match="rank must be at least 1"):
        extract_lora(*matrices(one, other), adapter, rank=0)
    with pytest.raises(TensorNotFoundError, match="not here"):
        extract_lora(matrices(one)[0], tensorkeep.open(tensorkeep.numpy.save({"y": one})), adapter, rank=1)
    alone = [tensorkeep.open(tensorkeep.numpy.save({"x.weight": x, "scale": x})) for x in (one, other)]
    with pytest.raises(RefusedError, match="no adapter can hold it"):
        extract_lora(*alone, adapter, rank=1)
    assert not adapter.exists()

    extract_lora(*matrices(one, other), adapter, rank=9)
    with pytest.raises(DestinationExistsError, match="there is an adapter"):
        extract_lora(*matrices(one, other), adapter, rank=1)
    assert json.loads((adapter / "adapter_config.json").read_text())["rank_pattern"] == {"x": 3}
    (adapter / "notes.txt").write_text("mine")
    done = []
    extract_lora(*matrices(one, other), adapter, rank=1, overwrite=True, progress=lambda *so_far: done.append(so_far))
    assert done == [(96, 192), (192, 192)]
    assert sorted(path.name for path in adapter.iterdir())[:3] == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "notes.txt",
    ]
