"""What the served checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

WEIGHTS = {f"layer.{n}.weight": np.random.default_rng(n).standard_normal((64, 300), np.float32) for n in range(8)}


def assert_weights(found: Mapping[str, Any]) -> None:
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], WEIGHTS[name]) for name in WEIGHTS)
