"""A language model of 2.5 GB, as files of random bytes and as a torch module; in a quick run, 0.5 MB."""

from __future__ import annotations

import os
from pathlib import Path

import safetensors
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read only from a local directory

import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import inputs
from benchmarks.case import Place

__all__ = ["Llama", "empty_model", "plain_files", "shards_of"]

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

N_SHARDS = 5


class Llama:
    """The model with weights of its own.

    Args:
        place: Where its files are.
    """

    def __init__(self, place: Place) -> None:
        self.files = plain_files(place)
        self.model = empty_model(self.files)
        self.model.load_state_dict(_owned_tensors(self.files), assign=True)
        self.max_shard_nbytes = _max_shard_nbytes(self.model)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Name to tensor; a new dict, because some savers remove tensors from it."""
        return dict(self.model.state_dict())


def plain_files(place: Place) -> Path:
    """Write the model in five shards without digests, like the Hugging Face libraries.

    Returns:
        The directory.
    """
    directory = place.folder / "llama"
    config = _config(place)
    config.save_pretrained(directory)
    model = _on_meta(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    inputs.sharded_files(directory, "BF16", shapes, _max_shard_nbytes(model))
    return directory


def empty_model(directory: Path) -> LlamaForCausalLM:
    """Create a directory's model without memory for its weights."""
    config = LlamaConfig.from_pretrained(directory)
    model = _on_meta(config)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # computed, never saved
    return model


def shards_of(directory: Path) -> list[Path]:
    """Return the files of a checkpoint, without the index."""
    return sorted(directory.glob("*.safetensors"))


def _config(place: Place) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=place.size(2048, 64),
        intermediate_size=place.size(5632, 176),
        num_hidden_layers=place.size(22, 4),
        vocab_size=place.size(32_000, 512),
        num_attention_heads=place.size(32, 1),
        tie_word_embeddings=False,
        dtype="bfloat16",
    )


def _on_meta(config: LlamaConfig) -> LlamaForCausalLM:
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    torch.nn.Module.to(model, dtype=torch.bfloat16)
    return model


def _max_shard_nbytes(model: LlamaForCausalLM) -> int:
    """Return a shard size that gives five shards, which are never quite full."""
    nbytes = sum(tensor.nbytes for tensor in model.state_dict().values())
    return int(1.15 * nbytes / N_SHARDS)


def _owned_tensors(directory: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for path in shards_of(directory):
        with safetensors.safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    return tensors
