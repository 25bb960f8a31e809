"""Three models of one architecture, the first of them the base."""

from __future__ import annotations

import numpy as np
import torch

WEIGHTS = (1.0, 0.5)
DENSITY = 0.4
SCALE = 0.75
T = 0.25


def models() -> list[dict[str, torch.Tensor]]:
    """Return models that are equal on every machine."""
    random = np.random.default_rng(0)
    base = {"w": random.standard_normal((6, 5)), "b": random.standard_normal(7)}
    made = [
        base,
        *({name: array + random.normal(0, 0.3, array.shape) for name, array in base.items()} for _ in WEIGHTS),
    ]
    return [
        {name: torch.from_numpy(array).float() for name, array in model.items()} | {"positions": torch.arange(4)}
        for model in made
    ]
