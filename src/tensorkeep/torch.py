"""The functions of `safetensors.torch`: replace the import, and keep the code.

    from tensorkeep.torch import load_file, save_file

Names, arguments and results are those of safetensors 0.8.0, the underscored ones that other libraries import
included; docs/compatibility.md lists what is done better. Beyond them there is `load_into`, which loads a checkpoint
of any number of files into a model that exists, in the memory that it has, and `load_sharded`, for models that are
spread over ranks; and `capture` and `restore`, for the whole state of a training run.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from tensorkeep.arrays import TensorToWrite, library_for, tensor_to_write
from tensorkeep.collector import PausedCollector
from tensorkeep.compat import TensorSpec, deserialize, safe_open, serialize, serialize_file, torch_raw, torch_sharing
from tensorkeep.compat.torch_sharing import storage_ptr, storage_size
from tensorkeep.compat.wording import (
    check_backend,
    check_content,
    check_device,
    check_instance,
    check_metadata,
    check_path,
    writing_errors,
)
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import load as load_tensors
from tensorkeep.kinds.safetensors import open_file
from tensorkeep.models import LoadReport, load_into, load_sharded
from tensorkeep.tensors import serialize_tensors, write_tensors
from tensorkeep.training import capture, restore

__all__ = [
    "LoadReport",
    "TensorSpec",
    "capture",
    "deserialize",
    "load",
    "load_file",
    "load_into",
    "load_model",
    "load_sharded",
    "restore",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "serialize",
    "serialize_file",
    "storage_ptr",
    "storage_size",
]


_SIZE = torch_raw.SIZE
_TYPES = torch_raw.TYPES
_end_ptr = torch_sharing.end_ptr
_filter_shared_not_shared = torch_sharing.filter_shared_not_shared
_find_shared_tensors = torch_sharing.find_shared_tensors
_is_complete = torch_sharing.is_complete
_remove_duplicate_names = torch_sharing.remove_duplicate_names
_to_ndarray = torch_raw.to_ndarray
_view2torch = torch_raw.view2torch


def save(tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Encode tensors as the bytes of a safetensors file.

    Args:
        tensors: Name to tensor, on any device and in any memory layout.
        metadata: Free text by key.

    Returns:
        The bytes.

    Raises:
        ValueError: If the argument is no dict of dense tensors.
        RuntimeError: If tensors share memory.
        DtypeError: If the format has no such dtype.
    """
    return serialize_tensors(_hosts(tensors), metadata=check_metadata(metadata))


def save_file(
    tensors: dict[str, torch.Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save tensors to a safetensors file, complete or not at all.

    Args:
        tensors: Name to tensor, on any device and in any memory layout. They must not change meanwhile.
        filename: Where the file is to appear.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; `tensorkeep.save` has it on.

    Raises:
        ValueError: If the argument is no dict of dense tensors.
        RuntimeError: If tensors share memory.
        DtypeError: If the format has no such dtype.
        TransportError: If the file cannot be written; it is then as it was before.
    """
    path = check_path(filename)
    with writing_errors():
        write_tensors(_hosts(tensors), path, metadata=check_metadata(metadata), durable=durable)


def load(data: bytes) -> dict[str, torch.Tensor]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name to tensor on the CPU; they own their memory.

    Raises:
        TypeError: If the argument is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If torch has no such dtype.
    """
    return load_tensors(check_content(data), framework="torch")


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "auto"
) -> dict[str, torch.Tensor]:
    """Load all tensors of a safetensors file.

    On the CPU, tensors of a mapped file are views of a private mapping: nothing is read before it is touched, and
    writing to them never reaches the file.

    Args:
        filename: The file.
        device: Where tensors go.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mapped unless the file is on a network or FUSE file system.

    Returns:
        Name to tensor, in the order of the bytes in the file.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If torch has no such dtype.
        TensorkeepError: If device or backend does not exist.
        TransportError: If the file cannot be read.
    """
    path, chosen = check_path(filename), check_device(device, library_for("torch"))
    return load_tensors(path, framework="torch", device=chosen, backend=check_backend(backend))


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,  # noqa: ARG001 - the reference has it
) -> None:
    """Save a model whose parameters may share memory.

    Of names that share memory one is kept; the others are noted in the metadata, so that `load_model` (the
    reference's too) ties them again.

    Args:
        model: The model.
        filename: Where the file is to appear.
        metadata: Free text by key; not changed.
        force_contiguous: Of no effect: tensors of any memory layout are packed while they are written.

    Raises:
        RuntimeError: If parameters overlap and none covers the others.
        DtypeError: If the format has no such dtype.
        TransportError: If the file cannot be written; it is then as it was before.
    """
    state_dict = model.state_dict()
    noted = dict(metadata or {})
    for kept, dropped in _remove_duplicate_names(state_dict).items():
        for name in dropped:
            noted.setdefault(name, kept)
            del state_dict[name]
    save_file(state_dict, filename, metadata=noted if noted or metadata is not None else None)


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: str | int = "cpu",
    *,
    backend: str = "auto",
) -> tuple[set[str], list[str]]:
    """Load a file into a model, tied parameters included.

    Args:
        model: The model; its parameters are overwritten in place.
        filename: The file.
        strict: Whether names that only the model or only the file has are an error.
        device: Where tensors are loaded to before they are copied.
        backend: How the file is read; see `load_file`.

    Returns:
        The names of the model that were not loaded, and the names of the file that were not used.

    Raises:
        RuntimeError: If names are missing or unexpected and `strict` is on, or shapes do not match.
        HeaderError: If it is not a whole safetensors file.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        TransportError: If the file cannot be read.
    """
    path = check_path(filename)
    state_dict = load_file(path, device=device, backend=backend)
    with open_file(path, OpenOptions(check=False)) as file:
        known = set(file.aliases)
    tied = _remove_duplicate_names(model.state_dict(), preferred_names=state_dict.keys())
    result = model.load_state_dict(state_dict, strict=False)
    missing, unexpected = set(result.missing_keys), list(result.unexpected_keys)
    for name in (name for names in tied.values() for name in names):
        if name in missing:
            missing.remove(name)
        elif name not in known:
            unexpected.append(name)
    if strict and (missing or unexpected):
        raise RuntimeError(_mismatch(model, missing, unexpected))
    return missing, unexpected


def _mismatch(model: torch.nn.Module, missing: set[str], unexpected: list[str]) -> str:
    text = f"Error(s) in loading state_dict for {type(model).__name__}:"
    for label, names in (("Missing", missing), ("Unexpected", unexpected)):
        if names:
            text += f"\n    {label} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names))
    return text


def _hosts(tensors: dict[str, torch.Tensor]) -> dict[str, TensorToWrite]:
    """Describe the tensors of a dict that `_evaluate_tensors_for_save` accepts."""
    _evaluate_tensors_for_save(tensors)
    for name, tensor in tensors.items():
        check_instance(name, "tensor_dict", str)
        if tensor.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    with PausedCollector():
        return {name: tensor_to_write(tensor, name) for name, tensor in tensors.items()}


def _flatten_as_ptr(tensors: dict[str, torch.Tensor], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """Describe contiguous tensors for `serialize`; see the reference."""
    _evaluate_tensors_for_save(tensors)
    return torch_raw.flatten_as_ptr(tensors, keep_alive_buffer)


def _getdtype(dtype_str: str) -> torch.dtype:
    """Return torch's dtype for a name of the format; KeyError where it has none."""
    return _TYPES[dtype_str]


def _evaluate_tensors_for_save(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse what a file cannot hold, in the reference's words."""
    if not isinstance(tensors, dict):
        raise ValueError(  # noqa: TRY004 - the reference's class
            f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}"
        )
    sparse = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(  # noqa: TRY004 - the reference's class
                f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}"
            )
        if tensor.layout != torch.strided:
            sparse.append(name)
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    failing = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if failing:
        raise RuntimeError(
            f"""
            Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them again: {failing}.
            A potential way to correctly save your model is to use `save_model`.
            More information at https://huggingface.co/docs/safetensors/torch_shared_tensors
            """  # noqa: E501 - the reference's words, line for line
        )
