"""What each of the reference's modules does with whole files, once its tensors are described for writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensorkeep.arrays import TensorToWrite, adapter_for
from tensorkeep.compat.wording import check_backend, check_content, check_metadata, check_path, writing_errors
from tensorkeep.entries import TensorEntry
from tensorkeep.kinds.safetensors import load
from tensorkeep.tensors import serialize_tensors, write_tensors


def encode(tensors: Mapping[str, TensorToWrite], metadata: Any) -> bytes:
    """Return the bytes of a file with tensors and metadata."""
    return serialize_tensors(tensors, metadata=check_metadata(metadata))


def write(tensors: Mapping[str, TensorToWrite], filename: Any, metadata: Any, *, durable: bool = False) -> None:
    """Write a file with tensors and metadata: completely or not at all."""
    path = check_path(filename)
    with writing_errors():
        write_tensors(tensors, path, metadata=check_metadata(metadata), durable=durable)


def decode(data: Any, framework: str, device: Any = "cpu") -> dict[str, Any]:
    """Return all tensors of a file that is in memory."""
    return load(check_content(data), framework=framework, device=device)


def read(filename: Any, framework: str, device: Any = "cpu", *, backend: Any) -> dict[str, Any]:
    """Return all tensors of a file."""
    return load(check_path(filename), framework=framework, device=device, backend=check_backend(backend))


def over_memory(
    views: Iterable[tuple[str, Mapping[str, Any]]], framework: str, device: Any = "cpu"
) -> dict[str, Any]:
    """Make tensors of what `deserialize` returns, over the same memory on the CPU."""
    adapter = adapter_for(framework, device)
    tensors: dict[str, Any] = {}
    for name, view in views:
        entry = TensorEntry(view["dtype"], tuple(view["shape"]), (0, len(view["data"])))
        tensors.update(adapter.views(view["data"], {name: entry}, 0))
    return adapter.place(tensors)
