"""A model whose layers take a rank's part of each weight, by the operations that vLLM's layers use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

HIDDEN, HEADS, INNER, VOCABULARY, EXPERTS = 512, 256, 1024, 4096, 4


class ParallelModel(nn.Module):
    """One layer with fused projections, a row-parallel one, an embedding, and experts."""

    def __init__(self, rank: int, world: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.rank, self.world = rank, world

        def made(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.full(shape, float("nan"), dtype=dtype), requires_grad=False)

        self.qkv = made(3 * HEADS // world, HIDDEN)
        self.down = made(HIDDEN, INNER // world)
        self.embedding = made(VOCABULARY // world, HIDDEN)
        self.experts = made(EXPERTS, INNER // world, HIDDEN)
        self.norm = made(HIDDEN)
        self.scale = made(1)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        loaded: set[str] = set()
        for name, weight in weights:
            if name in {"q", "k", "v"}:
                size = HEADS // self.world
                place = self.qkv.data.narrow(0, "qkv".index(name) * size, size)
                self._copy(place, weight.narrow(0, self.rank * size, size))
                loaded.add("qkv")
                continue
            if name == "down":
                size = INNER // self.world
                self._copy(self.down.data, weight.narrow(1, self.rank * size, size))
            elif name == "embedding":
                size = VOCABULARY // self.world
                self._copy(self.embedding.data, weight.narrow(0, self.rank * size, size))
            elif name == "experts":
                size = INNER // self.world
                for expert in range(EXPERTS):
                    self._copy(self.experts.data[expert], weight[expert].narrow(0, self.rank * size, size))
            elif name == "scale":
                self.scale.data.fill_(weight.item())
            else:
                self._copy(self.norm.data, weight)
            loaded.add(name)
        return loaded

    @staticmethod
    def _copy(place: torch.Tensor, weight: torch.Tensor) -> None:
        assert place.shape == weight.shape
        place.copy_(weight)

    def is_loaded(self, saved: dict[str, torch.Tensor]) -> bool:
        """Say whether it has its part of what was saved."""
        expected: Any = ParallelModel(self.rank, self.world, self.qkv.dtype)
        expected.load_weights(saved.items())
        return all(one.equal(other) for one, other in zip(self.parameters(), expected.parameters(), strict=True))


def saved_weights(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Return what a checkpoint of the model has."""
    torch.manual_seed(0)
    shapes = dict.fromkeys("qkv", (HEADS, HIDDEN))
    shapes |= {"down": (HIDDEN, INNER), "embedding": (VOCABULARY, HIDDEN)}
    weights = {name: torch.randn(*shape).to(dtype) for name, shape in shapes.items()}
    weights["experts"] = torch.randn(EXPERTS, INNER, HIDDEN).to(dtype)
    return weights | {"norm": torch.randn(HIDDEN).to(dtype), "scale": torch.tensor(0.5)}
