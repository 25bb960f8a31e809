"""A small model, spread over ranks as people do it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

__all__ = ["WAYS", "Net", "losses", "made", "optimizer_of", "world_of"]

WIDTH, N_WORDS = 16, 30

WAYS: dict[str, tuple[int, ...]] = {
    "fsdp4": (4,),
    "fsdp3": (3,),
    "fsdp2": (2,),
    "fsdp1": (1,),
    "tp4": (4,),
    "tp2": (2,),
    "fsdp_tp": (2, 2),
    "hybrid": (2, 2),
    "plain": (2,),
}
"""How a model is spread, and the shape of the mesh."""


class Net(nn.Module):
    """With tied weights, a buffer, sizes that no number of ranks divides, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(N_WORDS, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.odd = nn.Linear(WIDTH, 7)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, N_WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(words)
        hidden = self.norm(hidden + self.down(torch.relu(self.up(hidden))))
        return self.head(hidden).sum() * 0.01 + self.odd(hidden).square().mean()


def world_of(way: str) -> int:
    return torch.Size(WAYS[way]).numel()


def made(way: str, *, device: str = "cpu", seed: int = 0) -> Net:
    """Make the model, and spread it."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = Net()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if way.startswith("fsdp_tp"):
        mesh = init_device_mesh("cpu", WAYS[way], mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], plan)
        return _sharded(model, mesh["dp"])
    if way == "hybrid":
        return _sharded(model, init_device_mesh("cpu", WAYS[way], mesh_dim_names=("copies", "parts")))
    mesh = init_device_mesh("cpu", WAYS[way])
    if way.startswith("fsdp"):
        return _sharded(model, mesh)
    if way.startswith("tp"):
        parallelize_module(model, mesh, plan)
    return model


def _sharded(model: Net, mesh: Any) -> Net:
    fully_shard(model.up, mesh=mesh)
    fully_shard(model.down, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.05)


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, n_steps: int) -> list[float]:
    """Train, with the same words on every rank, and so the same numbers however the model is spread."""
    words = torch.arange(12).reshape(3, 4)
    found = []
    for _ in range(n_steps):
        loss = model(words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.steps += 1
        found.append(round(loss.item(), 4))
    return found
