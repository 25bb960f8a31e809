"""Adapters added to their base models: the numbers of peft, from files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import (
    DtypeError,
    FormatError,
    RefusedError,
    SourceMissingError,
    TensorNotFoundError,
    UnsupportedError,
)
from tensorkeep.merging import add_lora
from tests.support.integrations.transformers.tiny_trainers import gpt2


class Net(nn.Module):
    """A layer of each kind that adapters change."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(20, 12)
        self.narrow = nn.Linear(12, 8)
        self.square = nn.Linear(8, 8)
        self.pixels = nn.Conv2d(3, 6, 3)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.square(self.narrow(self.tokens(x))))


ALL = ["tokens", "narrow", "square", "pixels"]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ALL},
    "rslora": {"target_modules": ALL, "use_rslora": True},
    "patterns": {"target_modules": ALL, "rank_pattern": {"square": 2}, "alpha_pattern": {"square": 3, "pixels": 5}},
    "a pattern with a dot": {"target_modules": ALL, "alpha_pattern": {"squ.re": 3}},
    "dora": {"target_modules": ["narrow", "square"], "use_dora": True},
    "biases": {"target_modules": ["narrow", "square"], "lora_bias": True},
    "both": {"target_modules": ["narrow", "square"], "lora_bias": True, "bias": "lora_only"},
    "trained biases": {"target_modules": ["narrow"], "bias": "lora_only"},
    "a whole module": {"target_modules": ["narrow"], "modules_to_save": ["head"]},
}


def adapted(model: nn.Module, **settings: Any) -> Any:
    """Return a model with an adapter that changes something."""
    with warnings.catch_warnings(action="ignore"):
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=6, **settings))
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_it_is_what_peft_merges(settings: dict[str, Any], tmp_path: Path) -> None:
    tensorkeep.save(Net().state_dict(), tmp_path / "base.safetensors")
    model = adapted(Net(), **settings)
    model.save_pretrained(tmp_path / "adapter")

    base = tensorkeep.open(tmp_path / "base.safetensors", framework="torch")
    merged = add_lora(base, tensorkeep.open(tmp_path / "adapter"))
    tensorkeep.save_checkpoint(merged, tmp_path / "merged")

    expected = model.merge_and_unload().state_dict()
    saved = tensorkeep.load(tmp_path / "merged", framework="torch")
    assert saved.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(saved[name], tensor)
        assert torch.equal(merged[name][-1], saved[name][-1])
    assert any(not torch.equal(saved[name], base[name].load()) for name in saved)


@pytest.mark.parametrize("prefix", ["", "transformer."], ids=["without the prefix", "with it"])
def test_layers_of_gpt2_are_transposed(prefix: str, tmp_path: Path) -> None:
    names = ["c_attn", "c_proj"]
    weights = {prefix + name.removeprefix("transformer."): w for name, w in gpt2().transformer.state_dict().items()}
    tensorkeep.save(weights, tmp_path / "base.safetensors")
    model = adapted(gpt2(), target_modules=names, fan_in_fan_out=True)
    model.save_pretrained(tmp_path / "adapter")

    merged = add_lora(tensorkeep.open(tmp_path / "base.safetensors"), tensorkeep.open(tmp_path / "adapter"))

    expected = model.merge_and_unload().transformer.state_dict()
    assert sum(not torch.equal(expected[name.removeprefix(prefix)], weights[name]) for name in merged) == 6
    for name, lazy in merged.items():
        np.testing.assert_allclose(lazy.load(), expected[name.removeprefix(prefix)].numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fan_in_fan_out", [False, True])
def test_transposed_layers_beside_others(fan_in_fan_out: bool, tmp_path: Path) -> None:
    """peft saves the setting of the last layer, here the head, and the head's own weight; `attn.c_proj` is square."""
    model = gpt2(tie_word_embeddings=False)
    tensorkeep.save(model.state_dict(), tmp_path / "base.safetensors")
    model = adapted(model, target_modules=["c_proj", "lm_head"], fan_in_fan_out=fan_in_fan_out)
    model.save_pretrained(tmp_path / "adapter")

    merged = add_lora(tensorkeep.open(tmp_path / "base.safetensors"), tensorkeep.open(tmp_path / "adapter"))

    for name, expected in model.merge_and_unload().state_dict().items():
        np.testing.assert_allclose(merged[name].load(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_square_layers_of_either_kind() -> None:
    shapes = {
        "turned.weight": (3, 5),
        "turned.bias": (5,),
        "other.weight": (5, 3),
        "other.bias": (5,),
        "x.weight": (4, 4),
    }
    base = tensorkeep.open(
        tensorkeep.numpy.save({name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    )
    adapter = {"x.lora_A.weight": np.ones((2, 4), np.float32), "x.lora_B.weight": np.ones((4, 2), np.float32)}

    with pytest.raises(RefusedError, match=r"`x\.weight` is transposed"):
        add_lora(base, tensorkeep.open(tensorkeep.numpy.save(adapter)), settings=SETTINGS)


def test_halves_are_rounded_once(tmp_path: Path) -> None:
    weight, a, b = torch.randn(64, 32).bfloat16(), torch.randn(4, 32).bfloat16(), torch.randn(64, 4).bfloat16()
    adapter = {"x.lora_A.weight": a, "x.lora_B.weight": b}
    base, changes = (tensorkeep.open(tensorkeep.torch.save(each)) for each in ({"x.weight": weight}, adapter))

    merged = add_lora(base, changes, settings={"peft_type": "LORA", "lora_alpha": 8})["x.weight"].load()

    exact = weight.float() + 2 * (b.float() @ a.float())
    assert (torch.from_numpy(merged.view(np.uint16)).view(torch.bfloat16) == exact.bfloat16()).float().mean() > 0.99


SETTINGS = {"peft_type": "LORA", "lora_alpha": 8}
GOOD = {
    "base_model.model.x.lora_A.weight": np.ones((4, 3), np.float32),
    "x.lora_B.weight": np.ones((5, 4), np.float32),
}
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "another model": ({"y.lora_A.weight": GOOD["x.lora_B.weight"]}, {}, TensorNotFoundError, "`y.lora_A.weight`"),
    "half a product": ({"x.lora_B.weight": None}, {}, TensorNotFoundError, "`base_model.model.x.lora_A.weight`"),
    "an unknown part": (
        {"x.lora_C.weight": GOOD["x.lora_B.weight"]},
        {},
        TensorNotFoundError,
        "1 tensor of the adapter",
    ),
    "another width": ({"x.lora_B.weight": np.ones((6, 4), np.float32)}, {}, RefusedError, r"a change of \[5, 3\]"),
    "another rank": (
        {"x.lora_B.weight": np.ones((5, 2), np.float32)},
        {},
        RefusedError,
        "does not fit tensor `x.weight`",
    ),
    "no dimensions": ({"x.lora_B.weight": np.ones((), np.float32)}, {}, RefusedError, "does not fit"),
    "integers": ({"x.lora_B.weight": np.ones((5, 4), np.int32)}, {}, DtypeError, "I32 in `x.lora_B.weight`"),
    "two names for one part": ({"x.lora_A.weight": np.ones((4, 3), np.float32)}, {}, TensorNotFoundError, "1 tensor"),
    "factors of two layers": (
        {"enc.x.lora_A.weight": np.ones((4, 3), np.float32), "enc.x.lora_B.weight": np.ones((5, 4), np.float32)},
        {},
        TensorNotFoundError,
        "2 tensors of the adapter",
    ),
    "factors and the whole": ({"x.weight": np.ones((5, 3), np.float32)}, {}, TensorNotFoundError, "2 tensors"),
    "rank 0": (
        {
            "base_model.model.x.lora_A.weight": np.ones((0, 3), np.float32),
            "x.lora_B.weight": np.ones((5, 0), np.float32),
        },
        {},
        RefusedError,
        "does not fit",
    ),
    "a magnitude for each number": (
        {"x.lora_magnitude_vector": np.ones((5, 5), np.float32)},
        {"use_dora": True},
        RefusedError,
        "does not fit",
    ),
    "DoRA without magnitudes": ({}, {"use_dora": True}, TensorNotFoundError, "2 tensors"),
    "a base that was changed": ({}, {"init_lora_weights": "pissa_niter_4"}, UnsupportedError, "pissa_niter_4"),
    "aLoRA": ({}, {"alora_invocation_tokens": [1]}, UnsupportedError, "alora_invocation_tokens"),
    "another kind": ({}, {"peft_type": "IA3"}, UnsupportedError, "peft_type = 'IA3'"),
    "single parameters": ({}, {"target_parameters": ["x.weight"]}, UnsupportedError, "target_parameters"),
    "single tokens": ({}, {"trainable_token_indices": [1, 3]}, UnsupportedError, "trainable_token_indices"),
    "layers repeated": ({}, {"layer_replication": [[0, 2]]}, UnsupportedError, "layer_replication"),
    "a regular expression": ({}, {"alpha_pattern": {"(a+)+$": 1}}, UnsupportedError, "alpha_pattern"),
    "no alpha": ({}, {"lora_alpha": "much"}, FormatError, "no settings of a LoRA"),
}


@pytest.mark.parametrize(("tensors", "settings", "error", "says"), WRONG.values(), ids=WRONG)
def test_nothing_is_left_out(tensors: Any, settings: Any, error: type[Exception], says: str) -> None:
    given = {name: tensor for name, tensor in {**GOOD, **tensors}.items() if tensor is not None}
    base = tensorkeep.open(tensorkeep.numpy.save({"x.weight": np.ones((5, 3), np.float32)}))

    with pytest.raises(error, match=says):
        add_lora(base, tensorkeep.open(tensorkeep.numpy.save(given)), settings=SETTINGS | settings)


@pytest.mark.parametrize("shape", [(5, 5), (5, 2), (5, 1), (4,), ()], ids=str)
def test_a_bias_is_not_broadcast(shape: tuple[int, ...]) -> None:
    base = tensorkeep.open(
        tensorkeep.numpy.save({"x.weight": np.ones((5, 3), np.float32), "x.bias": np.ones(5, np.float32)})
    )
    adapter = tensorkeep.open(tensorkeep.numpy.save({**GOOD, "x.lora_B.bias": np.ones(shape, np.float32)}))

    with pytest.raises(RefusedError, match=r"does not fit tensor `x\.bias`"):
        add_lora(base, adapter, settings=SETTINGS)


def test_settings_that_are_nested_deeply(tmp_path: Path) -> None:
    base = tensorkeep.open(tensorkeep.numpy.save({"x.weight": np.ones((5, 3), np.float32)}))
    (tmp_path / "deep.json").write_text('{"peft_type": "LORA", "lora_alpha": 1, "a": ' + "[" * 300_000)

    with pytest.raises(FormatError, match="no settings"):
        add_lora(base, tensorkeep.open(tensorkeep.numpy.save(GOOD)), settings=tmp_path / "deep.json")


def test_settings_are_found_beside_the_adapter_or_given(tmp_path: Path) -> None:
    base = tensorkeep.open(tensorkeep.numpy.save({"x.weight": np.ones((5, 3), np.float32)}))
    tensorkeep.numpy.save_file(GOOD, tmp_path / "adapter_model.safetensors")
    adapter = tensorkeep.open(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json"):
        add_lora(base, adapter)

    (tmp_path / "adapter_config.json").write_text(json.dumps(SETTINGS))

    np.testing.assert_array_equal(add_lora(base, adapter)["x.weight"].load(), np.full((5, 3), 9))
    (tmp_path / "adapter_config.json").rename(tmp_path / "moved.json")
    np.testing.assert_array_equal(add_lora(base, adapter, settings=tmp_path / "moved.json")["x.weight"][2], [9, 9, 9])


@pytest.mark.parametrize("shape", [(20, 2500), (8, 2048), (9, 1)], ids=str)
def test_each_row_has_the_same_numbers_whatever_rows_are_read_with_it(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    weight, a, b = (
        random.standard_normal(each).astype(np.float32) for each in (shape, (16, shape[1]), (shape[0], 16))
    )
    adapter = {"x.lora_A.weight": a, "x.lora_B.weight": b}
    base, changes = (tensorkeep.open(tensorkeep.numpy.save(each)) for each in ({"x.weight": weight}, adapter))

    merged = add_lora(base, changes, settings={"peft_type": "LORA", "lora_alpha": 8})["x.weight"]

    whole = merged.load()
    np.testing.assert_array_equal(whole, weight + (b.astype(np.float64) @ (a * 0.5)).astype(np.float32))
    for start in range(shape[0]):
        np.testing.assert_array_equal(merged[start : start + 9], whole[start : start + 9])


def test_an_adapter_without_settings_says_how_to_name_them(tmp_path: Path) -> None:
    tensorkeep.save({"w.lora_A.weight": np.ones((1, 2), np.float32)}, tmp_path / "adapter_model.safetensors")
    with (
        tensorkeep.open(tmp_path / "adapter_model.safetensors") as adapter,
        pytest.raises(SourceMissingError, match=r"adapter_config\.json.*settings= \(--settings\)"),
    ):
        add_lora(adapter, adapter)
