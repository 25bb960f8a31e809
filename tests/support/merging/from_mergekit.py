"""Writes `mergekit.json`: what mergekit 0.1.5 makes of `models()`. Needs mergekit, which the tests do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from mergekit.merge_methods.generalized_task_arithmetic import get_mask
from mergekit.merge_methods.slerp import slerp
from mergekit.sparsify import magnitude

from tests.support.merging.models import DENSITY, SCALE, WEIGHTS, T, models


def main() -> None:
    """Merge, and write the numbers."""
    base, *others = [model["w"] for model in models()]
    weights = torch.tensor(WEIGHTS).view(-1, 1, 1)
    trimmed = torch.stack([magnitude(other - base, DENSITY) for other in others]) * weights
    mask = get_mask(trimmed)
    divisor = (weights * mask).sum(0)
    divisor[divisor == 0] = 1
    found = SimpleNamespace(
        slerp=slerp(torch.tensor(T), base[None], others[0][None])[0],
        ties=base + (trimmed * mask).sum(0) / divisor * SCALE,
    )
    lists = {name: tensor.tolist() for name, tensor in vars(found).items()}
    Path(__file__).with_name("mergekit.json").write_text(json.dumps(lists))


if __name__ == "__main__":
    sys.exit(main())
