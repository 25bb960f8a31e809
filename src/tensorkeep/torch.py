"""The functions of `safetensors.torch`: change the import, keep the code.

    from tensorkeep.torch import load_file, save_file

Names, arguments and results are those of safetensors 0.8 and 0.9, including underscored names that other libraries
import; docs/compatibility.md lists what is better here. There are more functions:

- `load_into` loads a checkpoint of any number of files into the memory of an existing model.
- `coverage` says beforehand which bytes go where, and `assert_loaded` afterwards whether they arrived.
- `load_sharded` does so for a model that is spread over ranks.
- `apply_patch` applies a patch to a model in memory.
- `capture` and `restore` are for the whole state of a training run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tensorkeep.errors import TensorkeepError, importing

with importing(torch='"tensorkeep[torch]"'):
    import torch

from tensorkeep.collector import PausedCollector

with PausedCollector():  # a collection during the import would walk all objects of torch, for twice the time
    from tensorkeep.arrays import TensorToWrite, adapter_for, library_for
    from tensorkeep.arrays.torch.partitioned import refuse_partitioned
    from tensorkeep.compat import (
        TensorSpec,
        deserialize,
        files,
        safe_open,
        serialize,
        serialize_file,
        torch_raw,
        torch_sharing,
    )
    from tensorkeep.compat.torch_sharing import storage_ptr, storage_size
    from tensorkeep.compat.wording import check_backend, check_device, check_names, check_path, check_tensors
    from tensorkeep.kinds import LoadOptions, OpenOptions, by_environment
    from tensorkeep.kinds.safetensors import open_file
    from tensorkeep.on_demand import find_on_demand
    from tensorkeep.tensors import near_others

if TYPE_CHECKING:
    from tensorkeep.models import (
        Arrival,
        Coverage,
        LoadReport,
        Unfilled,
        apply_patch,
        assert_loaded,
        coverage,
        load_into,
        load_sharded,
    )
    from tensorkeep.training import capture, restore

__all__ = [
    "Arrival",
    "Coverage",
    "LoadReport",
    "TensorSpec",
    "Unfilled",
    "apply_patch",
    "assert_loaded",
    "capture",
    "coverage",
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

_HOMES = {
    "Arrival": "tensorkeep.models:Arrival",
    "Coverage": "tensorkeep.models:Coverage",
    "LoadReport": "tensorkeep.models:LoadReport",
    "Unfilled": "tensorkeep.models:Unfilled",
    "assert_loaded": "tensorkeep.models:assert_loaded",
    "capture": "tensorkeep.training:capture",
    "coverage": "tensorkeep.models:coverage",
    "load_into": "tensorkeep.models:load_into",
    "apply_patch": "tensorkeep.models:apply_patch",
    "load_sharded": "tensorkeep.models:load_sharded",
    "restore": "tensorkeep.training:restore",
}
"""Where each name is that is imported on first use: `load_file` needs half as many modules."""


def __getattr__(name: str) -> Any:
    return find_on_demand(__name__, name, _HOMES)


_SIZE = torch_raw.SIZE
_TYPES = torch_raw.TYPES
_float8_e4m3fn = _TYPES.get("F8_E4M3")
_float8_e4m3fnuz = _TYPES.get("F8_E4M3FNUZ")
_float8_e5m2 = _TYPES.get("F8_E5M2")
_float8_e5m2fnuz = _TYPES.get("F8_E5M2FNUZ")
_float8_e8m0 = _TYPES.get("F8_E8M0")
_float4_e2m1_x2 = _TYPES.get("F4")
_end_ptr = torch_sharing.end_ptr
_filter_shared_not_shared = torch_sharing.filter_shared_not_shared
_find_shared_tensors = torch_sharing.find_shared_tensors
_is_complete = torch_sharing.is_complete
_remove_duplicate_names = torch_sharing.remove_duplicate_names
_to_ndarray = torch_raw.to_ndarray


def save(tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Encode tensors as the bytes of a safetensors file.

    Args:
        tensors: Name to dense tensor, on any device and in any memory layout. No two may share memory.
        metadata: Free text by key.

    Returns:
        The content of a file.

    Raises:
        ValueError: If `tensors` is not a dict of dense tensors.
        RuntimeError: If tensors share memory; `save_model` can store a model whose parameters do.
        NotImplementedError: If a tensor is on device meta, without data.
        TypeError: If a name or metadata is not text.
        DtypeError: If the format has no such dtype (also a TypeError).
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
    """
    return files.encode(_to_write(tensors), metadata)


def save_file(
    tensors: dict[str, torch.Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save tensors to a safetensors file. It appears complete or not at all.

        save_file({"weight": torch.zeros(1024, 1024)}, "model.safetensors", metadata={"format": "pt"})

    Args:
        tensors: Name to dense tensor, on any device and in any memory layout. No two may share memory, and they must
            not change until this returns.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; in `tensorkeep.save` it is on.

    Raises:
        ValueError: If `tensors` is not a dict of dense tensors.
        RuntimeError: If tensors share memory; `save_model` can store a model whose parameters do.
        NotImplementedError: If a tensor is on device meta, without data.
        TypeError: If a name or metadata is not text, or `filename` is not a path.
        DtypeError: If the format has no such dtype (also a TypeError).
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    files.write(_to_write(tensors), filename, metadata, durable=durable)


def load(data: bytes) -> dict[str, torch.Tensor]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name to tensor, on the CPU, in the order of the bytes in the file. The tensors own their memory.

    Raises:
        TypeError: If `data` is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If torch has no such dtype (also a TypeError).
        LimitError: If a tensor has more dimensions than torch allows.
    """
    return files.decode(data, "torch")


def load_file(
    filename: str | os.PathLike[str],
    device: str | int = "cpu",
    *,
    backend: str = "auto",
    device_map: Mapping[str, Any] | None = None,
) -> dict[str, torch.Tensor]:
    """Load all tensors of a safetensors file.

        tensors = load_file("model.safetensors", device="cuda")

    On the CPU, tensors of a mapped file are views of a private mapping: the disk is read when an element is first
    used, and writing to a tensor never reaches the file.

    Args:
        filename: The file.
        device: The device for the tensors: text, or the index of a CUDA device.
        backend: How to read: `"mmap"`, `"pread"`, or `"auto"`, which maps the file unless it is on a network or FUSE
            file system.
        device_map: Several devices instead of `device`, by the names of tensors and modules; see `tensorkeep.load`.

    Returns:
        Name to tensor, in the order of the bytes in the file.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If torch has no such dtype (also a TypeError).
        LimitError: If a tensor has more dimensions than torch allows.
        DeviceError: If a device is not on this machine, or `device_map` has none for a tensor (also a RuntimeError).
        TensorkeepError: If `device` or `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
    """
    device = check_device(device, library_for("torch"))
    if device_map is None:
        return files.read(filename, "torch", device, backend=backend)
    options = OpenOptions(framework="torch", backend=check_backend(backend), check=False)
    with open_file(check_path(filename), by_environment(options, filename)) as file:
        return file.load_on_devices(LoadOptions(device_map=device_map))


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,  # noqa: ARG001 - the reference has it
) -> None:
    """Save a model's state dict, in which parameters may share memory.

    Of the names that share memory, one is stored; the metadata maps the others to it, so that `load_model`, or the
    reference's, ties them again.

    Args:
        model: The model.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key. The dict is not changed.
        force_contiguous: Ignored: tensors of any memory layout are packed while they are written.

    Raises:
        RuntimeError: If parameters overlap and none of them covers the others.
        ValueError: If the state dict has values that are not dense tensors.
        NotImplementedError: If a tensor is on device meta, without data.
        TypeError: If metadata is not text, or `filename` is not a path.
        DtypeError: If the format has no such dtype (also a TypeError).
        HeaderError: If a name or text has no UTF-8 form.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    refuse_partitioned(model)
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
    """Load a file into a model, including tied parameters.

        missing, unexpected = load_model(model, "model.safetensors")

    Args:
        model: The model. Its parameters are overwritten in place.
        filename: The file.
        strict: Whether it is an error if only the model or only the file has a name.
        device: The device that tensors are loaded to before they are copied into the model.
        backend: How to read: `"mmap"`, `"pread"` or `"auto"`; see `load_file`.

    Returns:
        The names of the model that the file lacks, and the names of the file that the model lacks.

    Raises:
        RuntimeError: If names are missing or unexpected and `strict` is on, or shapes differ. With `strict` on, what
            fits has been loaded nevertheless, as by the reference; `load_into` changes nothing then.
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If torch has no such dtype (also a TypeError).
        LimitError: If a tensor has more dimensions than torch allows.
        DeviceError: If the device is not on this machine (also a RuntimeError).
        TensorkeepError: If `device` or `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
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


def _to_write(tensors: dict[str, torch.Tensor]) -> dict[str, TensorToWrite]:
    """Describe tensors for writing, or refuse them in the reference's words."""
    _refuse_other_values(tensors)
    describe = adapter_for("torch").tensor_to_write
    try:
        with PausedCollector():
            to_write = {name: describe(tensor, name) for name, tensor in tensors.items()}
    except TensorkeepError:
        _refuse_shared(tensors)  # the reference looks for this first
        if any(tensor.is_meta for tensor in tensors.values()):
            raise NotImplementedError("Cannot copy out of meta tensor; no data!") from None
        raise
    if near_others(to_write):
        _refuse_shared(tensors)
    check_names(tensors)
    return to_write


def _flatten_as_ptr(tensors: dict[str, torch.Tensor], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """Describe contiguous tensors for `serialize`."""
    _evaluate_tensors_for_save(tensors)
    return torch_raw.flatten_as_ptr(tensors, keep_alive_buffer)


def _getdtype(dtype_str: str) -> torch.dtype:
    """Return torch's dtype for a name of the format; KeyError if it has none."""
    return _TYPES[dtype_str]


def _view2torch(safeview: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, torch.Tensor]:
    """Make tensors of what `deserialize` returns, over the same memory."""
    return files.over_memory(safeview, "torch")


def _evaluate_tensors_for_save(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse tensors that a file cannot hold, in the reference's words."""
    _refuse_other_values(tensors)
    _refuse_shared(tensors)


def _refuse_other_values(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse what is not a dict of dense tensors."""
    check_tensors(tensors, torch.Tensor, "torch.Tensor")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )


def _refuse_shared(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse tensors that share bytes of a storage."""
    failing = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if failing:
        raise RuntimeError(
            f"""
            Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them again: {failing}.
            A potential way to correctly save your model is to use `save_model`.
            More information at https://huggingface.co/docs/safetensors/torch_shared_tensors
            """  # noqa: E501 - the reference's words, line for line
        )
