"""Checkpoints and what training makes of them, for the tests of patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tensorkeep

DTYPES = ("bfloat16", "float16", "float32", "float64", "int64", "int8", "bool", "complex64", "float8_e4m3fn")
SHARDS = "6kB"

Tensors = dict[str, np.ndarray[Any, Any]]


def step(seed: int, steps: int = 1) -> Tensors:
    """Return a checkpoint after some steps: tensors of all dtypes change a little, and some come and go."""
    assert ml_dtypes
    rng = np.random.default_rng(seed)
    tensors: Tensors = {
        dtype: rng.integers(0, 2 if dtype == "bool" else 60, 800).astype(dtype).reshape(20, 40) for dtype in DTYPES
    }
    tensors |= {"same": np.arange(9.0), "empty": np.empty((0, 3)), "scalar": np.float32(1).reshape(())}
    for number in range(steps):
        tensors |= {dtype: nudged(tensors[dtype], rng) for dtype in DTYPES}
        tensors["scalar"] = tensors["scalar"] + np.float32(number)
        tensors[f"new-{number}"] = np.full(5 + number, number)
        tensors["reshaped"] = np.ones((number + 1, 3), np.float16)
        tensors.pop(f"new-{number - 1}", None)
    tensors["tied"] = tensors["bfloat16"]
    return tensors


def nudged(tensor: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Change some elements by units in the last place."""
    changed = tensor.copy()
    if tensor.dtype == bool:
        changed.flat[::17] ^= True
        return changed
    bits = changed.reshape(-1).view(f"u{min(tensor.itemsize, 8)}")
    places = rng.choice(bits.size, bits.size // 50, replace=False)
    bits[places] += np.array(rng.choice([1, 2, 3, -1, -2], len(places))).astype(bits.dtype)
    return changed


def save(directory: Path, steps: int, seed: int = 1, shards: str = SHARDS) -> Path:
    """Save the checkpoint after some steps."""
    tensorkeep.save_checkpoint(step(seed, steps), directory, max_shard_size=shards, metadata={"steps": str(steps)})
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """Return the bytes of all files by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}
