"""Train a small transformer on several ranks with FSDP2, go on with another number of them, and load it on a laptop.

    torchrun --nproc-per-node 4 examples/distributed_transformer.py run --steps 4
    torchrun --nproc-per-node 2 examples/distributed_transformer.py run --steps 8    # goes on where four stopped
    python examples/distributed_transformer.py run                                   # loads it with transformers

Killed at any time, it goes on from the last save. Each rank writes its own parts, straight into the files that are
there in the end: nothing is gathered, and nothing is pickled.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tensorkeep.integrations.distributed import TensorkeepReader, TensorkeepWriter

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    tie_word_embeddings=True,
)


def words() -> torch.Tensor:
    """Return what the model learns: shape (4, 32), the same on all ranks, so that any number of them learns alike."""
    return torch.arange(4 * 32).reshape(4, 32) % 61


def sharded_model() -> Any:
    """Make the model, of which this rank has a part."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def save(path: Path, model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save the state of the run over the last one."""
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "step": step}, storage_writer=TensorkeepWriter(path))


def load(path: Path, model: Any, optimizer: torch.optim.Optimizer) -> int:
    """Go on from the last save, and return its step; 0 if there is none."""
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
        loss = model(input_ids=words(), labels=words()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        save(folder / "last", model, optimizer, step + 1)
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    dcp.save(get_model_state_dict(model), storage_writer=TensorkeepWriter(folder / "model"))
    if dist.get_rank() == 0:
        CONFIG.save_pretrained(folder / "model")


def look(folder: Path) -> None:
    """Load the model with transformers, which knows nothing of ranks."""
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    with torch.no_grad():
        loss = model(input_ids=words(), labels=words()).loss
    print(f"transformers: loss {loss.item():.4f}")


def main() -> None:
    """Train, or look at what was trained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    if "RANK" not in os.environ:  # which torchrun sets
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
