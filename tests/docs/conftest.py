"""The folder in which pages and examples are run."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers


@pytest.fixture(scope="session")
def reader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the reader's folder: a small model in one file, and one saved by transformers."""
    folder = tmp_path_factory.mktemp("reader")
    torch.manual_seed(0)
    layers = {f"layers.{i}.weight": torch.randn(64, 64, dtype=torch.bfloat16) for i in range(4)}
    tensors = {"embedding.weight": torch.randn(1000, 64), "head.bias": torch.zeros(1000), **layers}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertModel(config).save_pretrained(folder / "my-model")
    return folder
