"""Train a small transformer on several ranks with FSDP2, resume with another number, and load it on a laptop.

    torchrun --nproc-per-node 4 examples/distributed_transformer.py run --steps 4
    torchrun --nproc-per-node 2 examples/distributed_transformer.py run --steps 8    # resumes where four stopped
    python examples/distributed_transformer.py run                                   # loads it with transformers

Killed at any time, it resumes from the last save. Each rank writes its own parts straight into the final files:
nothing is gathered, and nothing is pickled.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from tensorkeep.integrations.distributed import TensorkeepReader, TensorkeepWriter

WIDTH, N_HEADS, N_LAYERS, N_WORDS = 64, 4, 2, 64
CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": 3 * WIDTH,
    "num_attention_heads": N_HEADS,
    "num_hidden_layers": N_LAYERS,
    "vocab_size": N_WORDS,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
"""The configuration for transformers; the model has the structure and names of its Llama."""


class Attention(nn.Module):
    """Causal attention with rotary position embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attention output; x and the result have shape (batch, words, WIDTH)."""
        query, key, value = (
            project(x).unflatten(-1, (N_HEADS, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        found = scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        gathered: torch.Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return gathered


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of numbers by position-dependent angles; x has shape (batch, heads, words, numbers)."""
    n_words, size = x.shape[-2:]
    angles = torch.outer(torch.arange(n_words), 10_000 ** -(torch.arange(0, size, 2) / size)).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


class FeedForward(nn.Module):
    """A gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return numbers of the same shape."""
        changed: torch.Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return changed


class Layer(nn.Module):
    """A transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.self_attn, self.mlp = Attention(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return numbers of the same shape."""
        gathered: torch.Tensor = x + self.self_attn(self.input_layernorm(x))
        changed: torch.Tensor = gathered + self.mlp(self.post_attention_layernorm(gathered))
        return changed


class Body(nn.Module):
    """All layers except the last."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(N_WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(N_LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return an embedding of each word, of shape (batch, words, WIDTH); words have shape (batch, words)."""
        x: torch.Tensor = self.embed_tokens(words)
        for layer in self.layers:
            x = layer(x)
        normed: torch.Tensor = self.norm(x)
        return normed


class Transformer(nn.Module):
    """A small Llama with tied first and last layers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Body()
        self.lm_head = nn.Linear(WIDTH, N_WORDS, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of predicting each next word; words have shape (batch, words)."""
        guesses = self.lm_head(self.model(words))
        return cross_entropy(guesses[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def words() -> torch.Tensor:
    """Return the training data, of shape (4, 32). It is the same on all ranks, so any number of them learns alike."""
    return torch.arange(4 * 32).reshape(4, 32) % 61


def sharded_model() -> Any:
    """Return the sharded model."""
    torch.manual_seed(0)
    model = Transformer()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def save(path: Path, model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save the state of the run over the previous one."""
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "step": step}, storage_writer=TensorkeepWriter(path))


def load(path: Path, model: Any, optimizer: torch.optim.Optimizer) -> int:
    """Restore the last save, and return its step, or 0 if there is none."""
    if not path.exists():
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, storage_reader=TensorkeepReader(path))
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    step: int = state["step"]
    return step


def train(folder: Path, n_steps: int) -> None:
    """Train up to a step, save after each one, and write the model for transformers at the end.

    Args:
        folder: Where the files go.
        n_steps: Steps in all, those of earlier runs included.
    """
    folder.mkdir(exist_ok=True)
    model = sharded_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(load(folder / "last", model, optimizer), n_steps):
        loss = model(words())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        save(folder / "last", model, optimizer, step + 1)
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    dcp.save(get_model_state_dict(model), storage_writer=TensorkeepWriter(folder / "model"))
    if dist.get_rank() == 0:
        (folder / "model" / "config.json").write_text(json.dumps(CONFIG, indent=2))
    dist.barrier()  # gloo may abort a rank that exits, and with it the others; so no rank exits before all are done


def look(folder: Path) -> None:
    """Load the model with transformers, which knows nothing about ranks."""
    from transformers import LlamaForCausalLM  # the ranks do not need it

    model = LlamaForCausalLM.from_pretrained(folder / "model")
    with torch.no_grad():
        loss = model(input_ids=words(), labels=words()).loss
    print(f"transformers: loss {loss.item():.4f}")


def main() -> None:
    """Train, or load the trained model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    if "RANK" not in os.environ:  # set by torchrun
        look(options.folder)
        return
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(options.folder, options.steps)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
