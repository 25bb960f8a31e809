"""The functions of `safetensors.numpy`: change the import, keep the code.

    from tensorkeep.numpy import load_file, save_file

Names, arguments and results are those of safetensors 0.8 and 0.9, including the underscored names. Better here:
bfloat16 and narrower floats work (through ml_dtypes), and arrays that are not in C order are written correctly; for
more, see docs/compatibility.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import TensorToWrite, adapter_for, tensor_to_write
from tensorkeep.collector import PausedCollector
from tensorkeep.compat import TensorSpec, deserialize, files, safe_open, serialize, serialize_file
from tensorkeep.compat.wording import check_instance, unknown_dtype_text
from tensorkeep.dtypes import DTYPES
from tensorkeep.errors import DtypeError

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
        The content of a file.

    Raises:
        DtypeError: If the format has no such dtype (also a TypeError).
        TypeError: If a name or metadata is not text.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
    """
    return files.encode(_to_write(tensor_dict), metadata)


def save_file(
    tensor_dict: dict[str, Array],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save arrays to a safetensors file. It appears complete or not at all.

        save_file({"weight": np.zeros((1024, 1024), np.float32)}, "model.safetensors")

    Args:
        tensor_dict: Name to array, in any memory layout and byte order. They must not change until this returns.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; in `tensorkeep.save` it is on.

    Raises:
        DtypeError: If the format has no such dtype (also a TypeError).
        TypeError: If a name or metadata is not text, or `filename` is not a path.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    files.write(_to_write(tensor_dict), filename, metadata, durable=durable)


def load(data: bytes) -> dict[str, Array]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name to array, in the order of the bytes in the file. The arrays own their memory.

    Raises:
        TypeError: If `data` is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If a dtype is unknown (also a TypeError).
        LimitError: If an array has more dimensions than NumPy allows.
    """
    return files.decode(data, "numpy")


def load_file(filename: str | os.PathLike[str], *, backend: str = "auto") -> dict[str, Array]:
    """Load all arrays of a safetensors file.

        arrays = load_file("model.safetensors")

    Arrays of a mapped file are views of a private mapping: the disk is read when an element is first used, and
    writing to an array never reaches the file.

    Args:
        filename: The file.
        backend: How to read: `"mmap"`, `"pread"`, or `"auto"`, which maps the file unless it is on a network or FUSE
            file system.

    Returns:
        Name to array, in the order of the bytes in the file.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If a dtype is unknown (also a TypeError).
        LimitError: If an array has more dimensions than NumPy allows.
        TensorkeepError: If `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
    """
    return files.read(filename, "numpy", backend=backend)


def _to_write(tensor_dict: dict[str, Array]) -> dict[str, TensorToWrite]:
    to_write = {}
    describe = adapter_for("numpy").tensor_to_write
    with PausedCollector():
        for name, array in tensor_dict.items():
            check_instance(name, "tensor_dict", str)
            dtype = array.dtype
            try:
                to_write[name] = describe(array, name) if type(array) is np.ndarray else tensor_to_write(array, name)
            except DtypeError:
                raise DtypeError(unknown_dtype_text(dtype.name), tensor=name) from None
    return to_write


def _flatten(tensor_dict: Mapping[str, Array], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """Describe arrays for `serialize`; copies of those that are not in C order and little endian."""
    flattened = {}
    for name, array in tensor_dict.items():
        packed = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        keep_alive_buffer.append(packed)
        flattened[name] = TensorSpec(
            dtype=packed.dtype.name, shape=array.shape, data_ptr=packed.ctypes.data, data_len=packed.nbytes
        )
    return flattened


def _getdtype(dtype_str: str) -> Any:
    """Return NumPy's dtype for a name of the format; KeyError if NumPy itself has none."""
    return _TYPES[dtype_str]


def _view2np(safeview: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Array]:
    """Make arrays of what `deserialize` returns, over the same memory."""
    return files.over_memory(safeview, "numpy")


def _is_little_endian(tensor: Array) -> bool:
    """Say whether an array's elements are little endian."""
    order = tensor.dtype.byteorder
    return order in "<|" or (order == "=" and np.little_endian)
