"""Tensors of known numbers, spread over ranks in every way that torch has."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

__all__ = ["PLACED", "distributed", "full", "is_equal", "local_part", "spread"]

S0, S1, S2, R = Shard(0), Shard(1), Shard(2), Replicate()

PLACED: dict[str, tuple[tuple[int, ...], torch.dtype, tuple[int, ...], list[Any]]] = {
    "rows": ((8, 5), torch.float32, (4,), [S0]),
    "rows_uneven": ((7, 5), torch.float32, (4,), [S0]),
    "rows_empty": ((5, 3), torch.float64, (4,), [S0]),
    "rows_fewer_than_ranks": ((2,), torch.int64, (4,), [S0]),
    "columns": ((3, 8), torch.bfloat16, (4,), [S1]),
    "columns_uneven": ((3, 9), torch.float16, (4,), [S1]),
    "depth": ((2, 3, 8), torch.float32, (4,), [S2]),
    "depth_uneven": ((2, 3, 6), torch.uint8, (4,), [S2]),
    "middle": ((3, 6, 2), torch.float32, (4,), [S1]),
    "squares": ((6, 10), torch.float32, (2, 2), [S0, S1]),
    "rows_twice": ((9, 3), torch.float32, (2, 2), [S0, S0]),
    "strided": ((16, 3), torch.float32, (2, 2), [_StridedShard(0, split_factor=2), S0]),
    "copies": ((4, 4), torch.bool, (4,), [R]),
    "hybrid": ((8, 3), torch.float32, (2, 2), [R, S0]),
    "hybrid_columns": ((3, 7), torch.float32, (2, 2), [S1, R]),
    "fp8": ((8, 4), torch.float8_e4m3fn, (4,), [S0]),
    "scalar": ((), torch.float32, (4,), [R]),
    "empty": ((0, 4), torch.float32, (4,), [S0]),
    "complex": ((8, 2), torch.complex64, (4,), [S0]),
}
"""Name to shape, dtype, shape of the mesh and placements, on four ranks."""


def full(name: str) -> torch.Tensor:
    """Return the whole tensor of a name: numbers that tell where they belong."""
    shape, dtype = PLACED[name][:2]
    numbers = torch.arange(max(1, torch.Size(shape).numel()), dtype=torch.float64)[: torch.Size(shape).numel()]
    numbers = (numbers * 3 + len(name)) % 101
    return (numbers % 2 if dtype == torch.bool else numbers).reshape(shape).to(dtype)


def spread(tensor: torch.Tensor, mesh_shape: tuple[int, ...], placements: list[Any]) -> DTensor:
    """Return this rank's part of a tensor."""
    mesh = init_device_mesh("cpu", mesh_shape)
    bits = tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
    made = distribute_tensor(bits, mesh, placements)
    if bits is tensor:
        return made
    local = made.to_local().view(tensor.dtype)
    return DTensor.from_local(local, mesh, placements, shape=made.shape, stride=made.stride())


def distributed() -> dict[str, Any]:
    """Return all of them, as this rank of four has them."""
    return {name: spread(full(name), mesh, placements) for name, (_, _, mesh, placements) in PLACED.items()}


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether dtype, shape and all bytes are equal."""
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and one.contiguous().reshape(-1).view(torch.uint8).equal(
        other.contiguous().reshape(-1).view(torch.uint8)
    )
