"""Writes a tiny model of each of several architectures: `tiny_models.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers

MODELS = {
    "llama": ("LlamaForCausalLM", {"attention_bias": True}),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 2}),
    "phi3": ("Phi3ForCausalLM", {"pad_token_id": 0, "eos_token_id": 1}),
}
"""Name to class, and what its config has beside the sizes."""


def main(folder: Path) -> None:
    torch.manual_seed(0)
    for name, (class_name, more) in MODELS.items():
        model_class = getattr(transformers, class_name)
        config = model_class.config_class(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=64,
            **more,
        )
        model_class(config).save_pretrained(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
