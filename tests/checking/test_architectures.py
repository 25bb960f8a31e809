"""Sound checkpoints of many architectures of transformers, MoE, tied, adapted: `check` has nothing against them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import tensorkeep
from tensorkeep.checking import _reference
from tensorkeep.checking._architecture import RefusedConfigError, describe
from tests.support.soak import rounds

T = {
    "num_hidden_layers": 6,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TWO = {
    **{f"{part}_layers": 6 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 48 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    "d_model": 32,
    "vocab_size": 100,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": 2,
}
VISION = {key: T[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")}
VISION |= {"image_size": 32, "patch_size": 8}
HEAD = T | {"head_dim": 8}
EXPERTS = HEAD | {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
ROUTED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "num_key_value_heads": 4}
LINEAR = {f"linear_{part}_head_dim": 8 for part in ("key", "value")}
LINEAR |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4}

FEW: dict[str, tuple[str, dict[str, Any]]] = {
    "MixtralForCausalLM": ("mixtral", T | {"num_local_experts": 4}),
    "GPT2LMHeadModel": ("gpt2", {"n_layer": 6, "n_embd": 32, "n_head": 4, "vocab_size": 100}),
    "BertForMaskedLM": ("bert", T),
    "T5ForConditionalGeneration": ("t5", {"num_layers": 6, "d_model": 32, "d_ff": 48, "d_kv": 8, "vocab_size": 100}),
}
MANY: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("llama", T),
    "Qwen2ForCausalLM": ("qwen2", T),
    "Qwen3MoeForCausalLM": ("qwen3_moe", EXPERTS | {"mlp_only_layers": [2]}),
    "Qwen3NextForCausalLM": ("qwen3_next", EXPERTS | LINEAR),
    "Gemma2ForCausalLM": ("gemma2", HEAD),
    "Gemma3ForCausalLM": ("gemma3_text", HEAD),
    "DeepseekV3ForCausalLM": (
        "deepseek_v3",
        T | LATENT | ROUTED | {"moe_intermediate_size": 16, "first_k_dense_replace": 2},
    ),
    "GptOssForCausalLM": ("gpt_oss", HEAD | {"num_local_experts": 4}),
    "GPTNeoXForCausalLM": ("gpt_neox", T),
    "OPTForCausalLM": ("opt", T | {"ffn_dim": 48, "word_embed_proj_dim": 16}),
    "FalconForCausalLM": ("falcon", T),
    "Phi3ForCausalLM": ("phi3", T),
    "MambaForCausalLM": ("mamba", {"num_hidden_layers": 6, "hidden_size": 32, "vocab_size": 100}),
    "JambaForCausalLM": (
        "jamba",
        T | {"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "num_experts": 4},
    ),
    "ZambaForCausalLM": ("zamba", T | {"attention_hidden_size": 64, "attn_layer_period": 3, "attn_layer_offset": 2}),
    "AlbertForMaskedLM": ("albert", T | {"embedding_size": 16}),
    "ElectraForMaskedLM": ("electra", T | {"embedding_size": 16}),
    "ModernBertForMaskedLM": ("modernbert", T),
    "BertForSequenceClassification": ("bert", T),
    "BertModel": ("bert", T),
    "BartForConditionalGeneration": ("bart", TWO),
    "MarianMTModel": ("marian", TWO),
    "WhisperForConditionalGeneration": ("whisper", TWO),
    "ViTForImageClassification": ("vit", VISION),
    "SwinForImageClassification": (
        "swin",
        {"embed_dim": 16, "depths": [2, 2, 4, 2], "num_heads": [2, 2, 4, 4], "image_size": 64, "window_size": 2},
    ),
    "ConvNextForImageClassification": ("convnext", {"hidden_sizes": [8, 16, 32, 64], "depths": [3, 3, 6, 3]}),
    "ResNetForImageClassification": ("resnet", {"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128]}),
    "CLIPModel": ("clip", {"text_config": T, "vision_config": VISION}),
    "LlavaForConditionalGeneration": (
        "llava",
        {
            "text_config": T | {"model_type": "llama"},
            "vision_config": VISION | {"model_type": "clip_vision_model"},
            "image_token_index": 99,
        },
    ),
    "Wav2Vec2ForCTC": (
        "wav2vec2",
        T | {"num_conv_pos_embedding_groups": 2, "num_conv_pos_embeddings": 16, "conv_dim": [32] * 7},
    ),
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build models here, where transformers is imported already; docs/how-to/check.md does it as users do."""

    def built(request: dict[str, Any]) -> Any:
        try:
            return json.loads(json.dumps(describe(request["config"], request["class"])))
        except RefusedConfigError as error:
            return {"refused": str(error)}

    monkeypatch.setattr(_reference, "_built", built)


def saved(name: str, kind: str, settings: dict[str, Any], path: Path) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        model = getattr(transformers, name)(transformers.CONFIG_MAPPING[kind](**settings))
        model.save_pretrained(path)
    return model


def check_sound(name: str, kind: str, settings: dict[str, Any], path: Path) -> None:
    saved(name, kind, settings, path)

    alone = tensorkeep.check(path, data=True)
    report = tensorkeep.check(path, against=path / "config.json")

    assert [*map(str, alone.findings), *map(str, report.findings)] == []
    assert report.against == name
    assert report.fit is not None
    assert (report.fit.share, report.n_tensors > 20) == (1, True)


@pytest.mark.parametrize("name", FEW)
def test_sound_models_make_sense(name: str, tmp_path: Path) -> None:
    check_sound(name, *FEW[name], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", list(MANY)[:: -(-len(MANY) // rounds(3, len(MANY)))])
def test_sound_models_of_many_kinds_make_sense(name: str, tmp_path: Path) -> None:
    check_sound(name, *MANY[name], tmp_path)


def test_a_model_without_its_head_is_missing_only_that(tmp_path: Path) -> None:
    saved("BertModel", *FEW["BertForMaskedLM"], tmp_path)

    report = tensorkeep.check(tmp_path, against="transformers:BertForSequenceClassification")

    (finding,) = report.findings
    assert (finding.code, finding.tensors) == ("missing", ("classifier.weight", "classifier.bias"))


def test_a_tied_head_that_differs_is_found(tmp_path: Path) -> None:
    saved("GPT2LMHeadModel", *FEW["GPT2LMHeadModel"], tmp_path)
    with tensorkeep.open(tmp_path) as opened:
        tensors = opened.load() | {"lm_head.weight": opened["transformer.wte.weight"].load() + 1}
    tensorkeep.save(tensors, tmp_path / "model.safetensors")

    report = tensorkeep.check(tmp_path, against=tmp_path / "config.json")

    assert [finding.code for finding in report.findings] == ["tie-broken"]


def test_an_adapter_makes_sense(tmp_path: Path) -> None:
    model = saved("GPT2LMHeadModel", *FEW["GPT2LMHeadModel"], tmp_path / "base")
    with warnings.catch_warnings(action="ignore"):
        settings = peft.LoraConfig(r=2, target_modules=["c_attn"], layers_to_transform=[1, 2, 3, 5])
        peft.get_peft_model(model, settings).save_pretrained(tmp_path / "adapter")

    report = tensorkeep.check(tmp_path / "adapter", data=True)

    assert {finding.severity for finding in report.findings} == {"note"}  # half of it begins as zeros


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "code of others": (
        {"architectures": ["Odd"], "auto_map": {"AutoModel": "m.Odd"}, "model_type": "odd"},
        "auto_map",
    ),
    "an unknown class": ({"architectures": ["Odd"], "model_type": "llama"}, "no model class"),
    "a function": ({"architectures": ["pipeline"], "model_type": "llama"}, "no model class"),
    "an unknown type": ({"model_type": "odd"}, "knows no model_type"),
    "too many layers": ({"model_type": "llama", "num_hidden_layers": 10**9}, "1000000000 layers"),
    "too many experts": ({"model_type": "mixtral", "num_local_experts": 10**5}, "100000 experts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_built_is_said(case: str, tmp_path: Path) -> None:
    config, message = REFUSED[case]
    tensorkeep.save({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))

    if case == "code of others":
        (finding,) = tensorkeep.check(tmp_path, against=tmp_path / "config.json").findings
        assert (finding.code, finding.severity) == ("needs-code", "error")
        return
    with pytest.raises(tensorkeep.errors.UnsupportedError, match=message):
        tensorkeep.check(tmp_path, against=tmp_path / "config.json")


def test_nothing_of_others_is_used_for_building(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "evil.Model"},
        "_attn_implementation": "someone/kernel",
        "quantization_config": {"quant_method": "odd"},
    } | T
    (tmp_path / "evil.py").write_text("raise SystemExit")

    assert describe(config, None)["model"] == "LlamaForCausalLM"


def test_the_program_that_builds_models_runs_nothing_that_a_config_can_name(tmp_path: Path) -> None:
    (tmp_path / "timm.py").write_text("print('timm was run')")
    program = (
        "import pickle, tensorkeep.checking._architecture as program\n"
        "program._refuse_code()\n"
        "try:\n    import timm\nexcept ImportError:\n    print('without timm')\n"
        "pickle.loads(b'cos\\nmkdir\\n.')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": path},
    )

    assert done.stdout == "without timm\n"
    assert "building its model would run something: pickle.find_class ('os', 'mkdir')" in done.stderr
