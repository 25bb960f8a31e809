"""The functions of `safetensors.mlx`: change the import, keep the code.

    from tensorkeep.mlx import load_file, save_file

Names, arguments and results are as in safetensors 0.8 and 0.9. As there, F64 is rounded to float32, which MLX can
use on every device; `tensorkeep.load(..., framework="mlx")` keeps it. Better here: bfloat16 can be saved.

`capture` and `restore` are for the whole state of a training run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorkeep.compat import files, safe_open
from tensorkeep.compat.describing import described
from tensorkeep.errors import importing
from tensorkeep.on_demand import find_on_demand

with importing(mlx='"mlx[cpu]"'):
    import mlx.core as mx

if TYPE_CHECKING:
    from tensorkeep.runs.mlx import capture, restore

__all__ = ["capture", "load", "load_file", "restore", "safe_open", "save", "save_file"]

_HOMES = {name: f"tensorkeep.runs.mlx:{name}" for name in ("capture", "restore")}
"""Where each name is that is imported on first use."""


def __getattr__(name: str) -> Any:
    return find_on_demand(__name__, name, _HOMES)


def save(tensors: dict[str, mx.array], metadata: dict[str, str] | None = None) -> bytes:
    """Encode arrays as the bytes of a safetensors file.

    Args:
        tensors: Name to array.
        metadata: Free text by key.

    Returns:
        The content of a file.

    Raises:
        DtypeError: If the format has no such dtype (also a TypeError).
        UnsupportedError: If a value has no bytes, such as one that is traced.
        TypeError: If a name or metadata is not text.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
    """
    return files.encode(described(tensors), metadata)


def save_file(
    tensors: dict[str, mx.array],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save arrays to a safetensors file. It appears complete or not at all.

    Args:
        tensors: Name to array.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; in `tensorkeep.save` it is on.

    Raises:
        DtypeError: If the format has no such dtype (also a TypeError).
        UnsupportedError: If a value has no bytes, such as one that is traced.
        TypeError: If a name or metadata is not text, or `filename` is not a path.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    files.write(described(tensors), filename, metadata, durable=durable)


def load(data: bytes) -> dict[str, mx.array]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name to array, in the order of the bytes in the file. They own their memory.

    Raises:
        TypeError: If `data` is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If the library has no such dtype (also a TypeError).
        LimitError: If a shape is beyond what the library can hold.
    """
    return _without_f64(files.decode(data, "mlx"))


def load_file(filename: str | os.PathLike[str], *, backend: str = "auto") -> dict[str, mx.array]:
    """Load all arrays of a safetensors file.

        arrays = load_file("model.safetensors")

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
        DtypeError: If the library has no such dtype (also a TypeError).
        LimitError: If a shape is beyond what the library can hold.
        TensorkeepError: If `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
    """
    return _without_f64(files.read(filename, "mlx", backend=backend))


def _without_f64(arrays: dict[str, Any]) -> dict[str, mx.array]:
    wide = {
        name: array.astype(mx.float32, stream=mx.cpu)
        for name, array in arrays.items()
        if array.itemsize == 8 and array.dtype == mx.float64  # the first is the quicker question
    }
    return arrays | wide if wide else arrays


def _np2mx(numpy_dict: dict[str, Any]) -> dict[str, mx.array]:
    """Make arrays of NumPy's, in place."""
    for name, array in numpy_dict.items():
        numpy_dict[name] = mx.array(array)
    return numpy_dict


def _mx2np(mx_dict: dict[str, Any]) -> dict[str, Any]:
    """Return NumPy arrays of MLX's."""
    return {name: np.asarray(array) for name, array in mx_dict.items()}
