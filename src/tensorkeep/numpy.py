"""The functions of `safetensors.numpy`: replace the import, and keep the code.

    from tensorkeep.numpy import load_file, save_file

Names, arguments and results are those of safetensors 0.8.0, the underscored ones included; docs/compatibility.md
lists what is done better: bfloat16 and the narrower floats work (through ml_dtypes), and arrays that are not in C
order are written right.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import TensorToWrite, adapter_for, tensor_to_write
from tensorkeep.compat import TensorSpec, deserialize, safe_open, serialize, serialize_file
from tensorkeep.compat.wording import (
    check_backend,
    check_content,
    check_instance,
    check_metadata,
    check_path,
    unknown_dtype_text,
    writing_errors,
)
from tensorkeep.dtypes import BY_NUMPY, DTYPES
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.kinds.safetensors import load as load_tensors
from tensorkeep.tensors import serialize_tensors, write_tensors

__all__ = [
    "TensorSpec",
    "deserialize",
    "load",
    "load_file",
    "safe_open",
    "save",
    "save_file",
    "serialize",
    "serialize_file",
]

Array = npt.NDArray[Any]

_TYPES: dict[str, Any] = {
    dtype.name: bool if dtype.numpy == "bool" else getattr(np, dtype.numpy) for dtype in DTYPES if dtype.is_in_numpy
}


def save(tensor_dict: dict[str, Array], metadata: dict[str, str] | None = None) -> bytes:
    """Encode arrays as the bytes of a safetensors file.

    Args:
        tensor_dict: Name to array, in any memory layout and byte order.
        metadata: Free text by key.

    Returns:
        The bytes.

    Raises:
        DtypeError: If the format has no such dtype.
        TypeError: If a name or metadata is not text.
        HeaderError: If a name or text is impossible.
    """
    return serialize_tensors(_hosts(tensor_dict), metadata=check_metadata(metadata))


def save_file(
    tensor_dict: dict[str, Array],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save arrays to a safetensors file, complete or not at all.

    Args:
        tensor_dict: Name to array, in any memory layout and byte order.
        filename: Where the file is to appear.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; `tensorkeep.save` has it on.

    Raises:
        DtypeError: If the format has no such dtype.
        TypeError: If a name or metadata is not text.
        HeaderError: If a name or text is impossible.
        TransportError: If the file cannot be written; it is then as it was before.
    """
    path = check_path(filename)
    with writing_errors():
        write_tensors(_hosts(tensor_dict), path, metadata=check_metadata(metadata), durable=durable)


def load(data: bytes) -> dict[str, Array]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name to array; they own their memory.

    Raises:
        TypeError: If the argument is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If a dtype is unknown.
    """
    return load_tensors(check_content(data))


def load_file(filename: str | os.PathLike[str], *, backend: str = "auto") -> dict[str, Array]:
    """Load all tensors of a safetensors file.

    Arrays of a mapped file are views of a private mapping: nothing is read before it is touched, and writing to
    them never reaches the file.

    Args:
        filename: The file.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mapped unless the file is on a network or FUSE file system.

    Returns:
        Name to array, in the order of the bytes in the file.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If a dtype is unknown.
        TensorkeepError: If the backend does not exist.
        TransportError: If the file cannot be read.
    """
    return load_tensors(check_path(filename), backend=check_backend(backend))


def _hosts(tensor_dict: dict[str, Array]) -> dict[str, TensorToWrite]:
    to_write = {}
    for name, array in tensor_dict.items():
        check_instance(name, "tensor_dict", str)
        if array.dtype.name not in BY_NUMPY:
            raise DtypeError(unknown_dtype_text(array.dtype.name), tensor=name)
        to_write[name] = tensor_to_write(array, name)
    return to_write


def _flatten(tensor_dict: Mapping[str, Array], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """Describe arrays for `serialize`, packed where they are not in C order and little endian."""
    flattened = {}
    for name, array in tensor_dict.items():
        packed = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        keep_alive_buffer.append(packed)
        flattened[name] = TensorSpec(
            dtype=packed.dtype.name, shape=array.shape, data_ptr=packed.ctypes.data, data_len=packed.nbytes
        )
    return flattened


def _getdtype(dtype_str: str) -> Any:
    """Return NumPy's dtype for a name of the format; KeyError where NumPy itself has none."""
    return _TYPES[dtype_str]


def _view2np(safeview: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Array]:
    """Make arrays of what `deserialize` gives, over the same memory."""
    adapter = adapter_for("numpy")
    arrays: dict[str, Array] = {}
    for name, view in safeview:
        entry = TensorEntry(view["dtype"], tuple(view["shape"]), (0, len(view["data"])))
        arrays.update(adapter.views(view["data"], {name: entry}, 0))
    return arrays


def _is_little_endian(tensor: Array) -> bool:
    """Say whether an array's elements are little endian."""
    order = tensor.dtype.byteorder
    return order in "<|" or (order == "=" and np.little_endian)
