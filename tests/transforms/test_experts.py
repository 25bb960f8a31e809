"""Experts stacked and split: what transformers 5 has in memory, and the files that it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DeepseekV3Config, MixtralConfig, Qwen3MoeConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3ForCausalLM
from transformers.models.mixtral.modeling_mixtral import MixtralForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeForCausalLM

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import RefusedError, TensorNotFoundError, UnsupportedError
from tensorkeep.transforms import KeyMap, split_experts, stack_experts

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
MODELS = {
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=5)),
    "qwen": lambda: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(**SIZES, head_dim=8, num_experts=5, moe_intermediate_size=12, decoder_sparse_step=1)
    ),
    "deepseek": lambda: DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **SIZES,
            moe_intermediate_size=12,
            n_routed_experts=4,
            n_group=2,
            topk_group=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            q_lora_rank=8,
            kv_lora_rank=8,
            qk_rope_head_dim=4,
            qk_nope_head_dim=4,
            v_head_dim=8,
        )
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_they_are_what_transformers_makes_of_them(tmp_path: Path, name: str) -> None:
    model = MODELS[name]().bfloat16()
    model.save_pretrained(tmp_path / "saved")
    expected = model.state_dict()
    layout = "qwen" if name == "deepseek" else name

    with tensorkeep.open(tmp_path / "saved", framework="torch") as file:
        stacked = stack_experts(file)
        mapped = {each: lazy for each, lazy in stacked.items() if ".mlp.experts." in each}
        assert set(stacked) == set(expected)
        assert all(torch.equal(lazy.load(), expected[each]) for each, lazy in stacked.items())
        assert all(lazy.span is not None for lazy in mapped.values())  # the kernel copies them
        for lazy in mapped.values():
            assert torch.equal(lazy[1, 2:, ::3], expected[lazy.name][1, 2:, ::3])
    assert main(["transform", "stack-experts", str(tmp_path / "saved"), "-o", str(tmp_path / "stacked")]) == 0
    split = [
        "transform",
        "split-experts",
        str(tmp_path / "stacked"),
        "-o",
        str(tmp_path / "split"),
        "--layout",
        layout,
    ]
    assert main(split) == 0
    assert tensorkeep.diff(tmp_path / "saved", tmp_path / "split").is_equal
    assert not tensorkeep.verify(tmp_path / "split").findings


def experts(n: int, *, hidden: int = 4) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        f"layers.{layer}.mlp.experts.{expert}.{part}_proj.weight": random.random((3, hidden)).astype(np.float32)
        for layer in range(2)
        for expert in range(n)
        for part in ("gate", "up", "down")
    }


def opened(tmp_path: Path, tensors: dict[str, np.ndarray]) -> tensorkeep.LazyTensors:
    tensorkeep.save(tensors, tmp_path / "model.safetensors")
    return tensorkeep.open(tmp_path / "model.safetensors")


def test_gaps_are_listed(tmp_path: Path) -> None:
    tensors = experts(12)
    for expert in (3, 4, 11):
        del tensors[f"layers.1.mlp.experts.{expert}.up_proj.weight"]

    with pytest.raises(RefusedError, match=r"3 parts of `layers.1.mlp.experts.gate_up_proj` are missing") as caught:
        stack_experts(opened(tmp_path, tensors))
    assert "experts.3.up_proj" in str(caught.value)
    assert "experts.11.up_proj" in str(caught.value)


def test_an_expert_of_another_shape_or_dtype_is_refused(tmp_path: Path) -> None:
    tensors = experts(3)
    name = "layers.0.mlp.experts.1.up_proj.weight"
    for odd in (np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float16), np.zeros((3, 4, 1), np.float32)):
        with pytest.raises(RefusedError, match="cannot be joined"):
            stack_experts(opened(tmp_path, tensors | {name: odd}))


def test_what_the_layout_does_not_name_is_not_left_behind(tmp_path: Path) -> None:
    tensors = experts(2) | {"layers.0.mlp.experts.1.up_proj.weight_scale": np.ones(1, np.float32)}
    with pytest.raises(RefusedError, match=r"1 tensor of experts would not be stacked.*weight_scale"):
        stack_experts(opened(tmp_path, tensors))


def test_no_experts_and_no_layout(tmp_path: Path) -> None:
    file = opened(tmp_path, {"w": np.ones(3)})
    with pytest.raises(TensorNotFoundError, match="no experts"):
        stack_experts(file)
    with pytest.raises(TensorNotFoundError):
        split_experts(file, "qwen")
    with pytest.raises(UnsupportedError, match="no such layout"):
        split_experts(file, "../x")


def test_hostile_names_and_shapes(tmp_path: Path) -> None:
    far = {"layers.0.mlp.experts.999999999.down_proj.weight": np.ones((2, 2))}
    with pytest.raises(RefusedError, match="too many parts"):
        stack_experts(opened(tmp_path, far))
    many = {"mlp.experts.down_proj": np.ones((0, 2, 2)), "a.mlp.experts.down_proj": np.ones((70_000, 0, 2))}
    with pytest.raises(RefusedError, match="too many parts"):
        split_experts(opened(tmp_path, many), "qwen")
    for shape in ((), (3,), (3, 5, 2)):
        file = opened(tmp_path, {"a.mlp.experts.gate_up_proj": np.ones(shape)})
        with pytest.raises(RefusedError, match="does not fit its rule"):
            split_experts(file, "qwen")


def test_empty_experts(tmp_path: Path) -> None:
    file = opened(tmp_path, experts(2, hidden=0))
    stacked = stack_experts(file)
    tensorkeep.save(stacked, tmp_path / "stacked.safetensors")
    assert tensorkeep.open(tmp_path / "stacked.safetensors")["layers.0.mlp.experts.gate_up_proj"].shape == (2, 6, 0)


def test_a_key_map_names_others(tmp_path: Path) -> None:
    key_map = KeyMap.parse('[[rules]]\nfrom = "e{n}.w"\nto = "all"\nstack = "n"')
    file = opened(tmp_path, {f"e{n}.w": np.full((2, 2), n) for n in range(11)})
    assert stack_experts(file, key_map)["all"].load()[:, 0, 0].tolist() == list(range(11))
