"""One of several ranks, which all save the same state with torch.distributed.checkpoint, in each of its forms.

`many_ranks.py FOLDER`, with RANK and WORLD_SIZE in the environment.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard, init_device_mesh
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["FORMS", "WHOLE", "nested_of"]

WHOLE: dict[str, torch.Tensor] = {
    "rows": torch.arange(7 * 3, dtype=torch.float32).reshape(7, 3),
    "columns": torch.arange(5 * 10, dtype=torch.bfloat16).reshape(5, 10),
    "tiles": torch.arange(9 * 6 * 2, dtype=torch.int64).reshape(9, 6, 2),
    "few": torch.arange(3, dtype=torch.float64),
    "replicated": torch.tensor([1 + 2j, 3, -4j, 5], dtype=torch.complex64),
    "both": torch.arange(20 * 2, dtype=torch.int16).reshape(20, 2),
    "plain": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5),
}
"""Name to tensor, of those that are spread over ranks."""

PLACEMENTS: dict[str, list[Any]] = {
    "rows": [Shard(0), Replicate()],
    "columns": [Replicate(), Shard(1)],
    "tiles": [Shard(0), Shard(1)],
    "few": [Shard(0), Shard(0)],
    "replicated": [Replicate(), Replicate()],
    "both": [Shard(0), Shard(0)],
}


def tensors_on(mesh: DeviceMesh) -> dict[str, Any]:
    return {
        name: spread(whole, mesh, PLACEMENTS[name]) if name in PLACEMENTS else whole for name, whole in WHOLE.items()
    }


def spread(whole: torch.Tensor, mesh: DeviceMesh, placements: list[Any]) -> DTensor:
    """Cut a tensor without sending any of it, which gloo cannot do for every dtype."""
    sizes, offsets = compute_local_shape_and_global_offset(whole.shape, mesh, placements)
    local = whole[tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))]
    return DTensor.from_local(
        local.clone(), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def nested_of(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return a state with numbers and texts between its tensors."""
    return {
        "model": dict(tensors),
        "optim": {
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}],
            "state": {"a.b": {"step": tensors["scalar"].clone()}},
        },
        "epoch": 3,
        "mixed": [tensors["plain"].clone(), "text", {"deep": tensors["few"].clone()}],
        "pair": (1, tensors["plain"]),
    }


FORMS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "distcp": lambda path, tensors: dcp.save(nested_of(tensors), checkpoint_id=path),
    "file per item": lambda path, tensors: dcp.save(
        nested_of(tensors), storage_writer=FileSystemWriter(path, single_file_per_rank=False)
    ),
    "safetensors": lambda path, tensors: dcp.save(
        nested_of(tensors),
        storage_writer=FileSystemWriter(path, serialization_format=SerializationFormat.SAFETENSORS),
    ),
    "without collectives": lambda path, tensors: dcp.save(
        nested_of(tensors), storage_writer=FileSystemWriter(path), use_collectives=False
    ),
    "hf": lambda path, tensors: dcp.save(
        tensors, storage_writer=HuggingFaceStorageWriter(str(path), save_distributed=True)
    ),
    "hf, two files per rank": lambda path, tensors: dcp.save(
        tensors,
        storage_writer=HuggingFaceStorageWriter(
            str(path),
            fqn_to_index_mapping={name: 1 + place % 2 for place, name in enumerate(WHOLE)},
            save_distributed=True,
        ),
    ),
}
"""Form of a checkpoint to what saves it."""


def main(folder: Path, rank: int, world: int) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    tensors = tensors_on(init_device_mesh("cpu", (2, world // 2)))
    for form, save in FORMS.items():
        save(folder / form, tensors)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
