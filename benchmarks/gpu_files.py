"""Files that `benchmarks.gpu` loads; their names say what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

import tensorkeep

_SMALL_NBYTES: Final = 2048
_N_LARGE: Final = 300
_N_COLUMNS: Final = 4096
_GROUP: Final = 128


def make(path: Path, nbytes: int, n_small: int) -> None:
    """Write a file of `n_small` tensors, or of `nbytes` bytes of bf16 or f16."""
    match path.name.removeprefix("warm."):
        case "small.safetensors":
            small = {f"layers.{n}.scale": torch.randn(_SMALL_NBYTES // 2).bfloat16() for n in range(n_small)}
            tensorkeep.torch.save_file(small, path)
        case "awq.safetensors":
            tensorkeep.torch.save_file(_in_four_bits(nbytes), path)
        case _:
            dtype = torch.float16 if "half" in path.name else torch.bfloat16
            one = torch.randn(max(1, nbytes // _N_LARGE // (2 * _N_COLUMNS)), _N_COLUMNS).to(dtype)
            large = {f"layers.{n}.weight": one.clone() for n in range(_N_LARGE)}
            (torch.save if path.suffix == ".pt" else tensorkeep.save)(large, path)


def _in_four_bits(nbytes: int) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint in AWQ's layout that has some bytes as bf16."""
    n_rows = max(1, nbytes // _N_LARGE // (2 * _N_COLUMNS) // _GROUP) * _GROUP
    n_layers = min(_N_LARGE, max(1, nbytes // (2 * n_rows * _N_COLUMNS)))
    one = {
        "qweight": torch.randint(-(2**31), 2**31, (n_rows, _N_COLUMNS // 8), dtype=torch.int32),
        "qzeros": torch.randint(-(2**31), 2**31, (n_rows // _GROUP, _N_COLUMNS // 8), dtype=torch.int32),
        "scales": torch.rand(n_rows // _GROUP, _N_COLUMNS).half(),
    }
    return {f"layers.{n}.{part}": tensor.clone() for n in range(n_layers) for part, tensor in one.items()}
