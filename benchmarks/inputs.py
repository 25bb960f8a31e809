"""The files that are read, in or out of the page cache.

Files are written by code of their own, so that no contender writes them.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np

__all__ = [
    "drop_from_cache",
    "empty_file",
    "header_of",
    "pt_copy",
    "read_into_cache",
    "sharded_files",
    "tensor_file",
    "tensor_names",
]

_NBYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}
_BLOCK_NBYTES = 2**24

_Shapes = Mapping[str, tuple[int, ...]]


def tensor_file(folder: Path, dtype: str, shape: tuple[int, ...], n_tensors: int, *, align: int = 8) -> Path:
    """Make a safetensors file of equal tensors of random bytes, unless it exists.

    Args:
        folder: Where.
        dtype: `"F32"` or `"BF16"`.
        shape: Elements of each tensor.
        n_tensors: How many.
        align: Bytes at a multiple of which the data begin.

    Returns:
        The file.
    """
    aligned = "" if align == 8 else f"-aligned-{align}"
    path = folder / f"{dtype}-{'x'.join(map(str, shape))}-{n_tensors}{aligned}.safetensors"
    if path.exists():
        return path
    _write(path, dtype, dict.fromkeys(tensor_names(n_tensors), shape), align=align)
    return path


def empty_file(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> Path:
    """Make a safetensors file of zeros, which take no room on disks that have holes, unless it exists.

    Args:
        path: The file.
        tensors: Name to dtype and shape.

    Returns:
        The file.
    """
    if not path.exists():
        header, end = {}, 0
        for name, (dtype, shape) in tensors.items():
            start, end = end, end + prod(shape) * _NBYTES[dtype]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        unfinished = path.with_suffix(".part")
        with unfinished.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        unfinished.rename(path)
    return path


def sharded_files(directory: Path, dtype: str, shapes: _Shapes, max_shard_nbytes: int) -> Path:
    """Make a sharded checkpoint of random bytes, like the Hugging Face libraries, unless it exists.

    Args:
        directory: The directory to create.
        dtype: `"F32"` or `"BF16"`.
        shapes: Name to shape, in the order in which shards are filled.
        max_shard_nbytes: Bytes of tensors in one shard.

    Returns:
        The index.
    """
    index = directory / "model.safetensors.index.json"
    if index.exists():
        return index
    directory.mkdir(exist_ok=True)
    shards = _fill_shards(dtype, shapes, max_shard_nbytes)
    weight_map: dict[str, str] = {}
    for at, shard in enumerate(shards, start=1):
        file = f"model-{at:05}-of-{len(shards):05}.safetensors"
        _write(directory / file, dtype, shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    total = sum(map(prod, shapes.values())) * _NBYTES[dtype]
    index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2))
    return index


def _fill_shards(dtype: str, shapes: _Shapes, max_shard_nbytes: int) -> list[_Shapes]:
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    room = max_shard_nbytes
    for name, shape in shapes.items():
        nbytes = prod(shape) * _NBYTES[dtype]
        if nbytes > room:
            shards.append({})
            room = max_shard_nbytes
        shards[-1][name] = shape
        room -= nbytes
    return list(shards)


def _write(
    path: Path, dtype: str, shapes: _Shapes, metadata: Mapping[str, str] | None = None, *, align: int = 8
) -> None:
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + prod(shape) * _NBYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % align)
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for block in _random_blocks(end):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def tensor_names(n_tensors: int) -> Iterator[str]:
    """Return names like those of models, in the order in which writers sort them."""
    parts = (
        "attn.k_proj",
        "attn.o_proj",
        "attn.q_proj",
        "attn.v_proj",
        "mlp.down_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
    )
    all_names = (f"model.layers.{layer:05}.{part}.weight" for layer in range(n_tensors) for part in parts)
    return islice(all_names, n_tensors)


def _random_blocks(nbytes: int) -> Iterator[bytes]:
    block = np.random.default_rng(0).bytes(min(_BLOCK_NBYTES, nbytes))
    for start in range(0, nbytes, _BLOCK_NBYTES):
        yield block[: nbytes - start]


def pt_copy(path: Path) -> Path:
    """Save the same tensors with `torch.save`, unless the file exists.

    Args:
        path: A safetensors file.

    Returns:
        The file.
    """
    import torch
    from safetensors.torch import load_file

    copy = path.with_suffix(".pt")
    if not copy.exists():
        unfinished = copy.with_suffix(".part")
        torch.save(load_file(path), unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.rename(copy)
    return copy


def header_of(path: Path) -> bytes:
    """Return the JSON header of a safetensors file."""
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def read_into_cache(path: Path) -> None:
    """Bring all of a file into the page cache."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_BLOCK_NBYTES)
        while file.readinto(buffer):
            pass


def drop_from_cache(path: Path) -> None:
    """Drop a file from the page cache.

    Raises:
        RuntimeError: If the system keeps more than a hundredth of it, which would make a cold read warm.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = _share_in_cache(path)
    if share > 0.01:
        raise RuntimeError(f"{share:.0%} of {path} is still in the page cache")


def _share_in_cache(path: Path) -> float:
    """Ask mincore(2) which pages of a file are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        address = np.frombuffer(mapping, np.uint8).ctypes.data
        n_pages = -(-len(mapping) // mmap.PAGESIZE)
        resident = np.zeros(n_pages, np.uint8)
        failed = libc.mincore(
            ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), ctypes.c_void_p(resident.ctypes.data)
        )
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return float((resident & 1).mean())
