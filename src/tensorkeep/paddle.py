"""The functions of `safetensors.paddle`: change the import, keep the code.

    from tensorkeep.paddle import load_file, save_file

Names, arguments and results are as in safetensors 0.8 and 0.9. Better here: tensors of any memory layout are
saved, U32, U64 and complex numbers work, and two tensors at one address can be freed.

`capture` and `restore` are for the whole state of a training run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import TensorToWrite
from tensorkeep.compat import TensorSpec, deserialize, files, safe_open, serialize, serialize_file
from tensorkeep.compat.describing import described
from tensorkeep.compat.wording import check_tensors, strided_text
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import importing
from tensorkeep.on_demand import find_on_demand

with importing(paddle="paddlepaddle"):
    import paddle

if TYPE_CHECKING:
    from tensorkeep.runs.paddle import capture, restore

__all__ = [
    "TensorSpec",
    "capture",
    "deserialize",
    "load",
    "load_file",
    "restore",
    "safe_open",
    "save",
    "save_file",
    "serialize",
    "serialize_file",
]

_HOMES = {name: f"tensorkeep.runs.paddle:{name}" for name in ("capture", "restore")}
"""Where each name is that is imported on first use."""


def __getattr__(name: str) -> Any:
    return find_on_demand(__name__, name, _HOMES)


_TYPES = {
    "F64": paddle.float64,
    "F32": paddle.float32,
    "F16": paddle.float16,
    "BF16": paddle.bfloat16,
    "I64": paddle.int64,
    "I32": paddle.int32,
    "I16": paddle.int16,
    "I8": paddle.int8,
    "U8": paddle.uint8,
    "BOOL": paddle.bool,
    "F8_E4M3": paddle.float8_e4m3fn,
    "F8_E5M2": paddle.float8_e5m2,
}
_SIZE = {dtype: BY_NAME[name].itemsize for name, dtype in _TYPES.items()} | {paddle.complex64: 8}
NPDTYPES: dict[Any, Any] = {
    dtype: np.dtype(BY_NAME[name].numpy).type if BY_NAME[name].is_in_numpy else np.uint8
    for name, dtype in _TYPES.items()
} | {paddle.bool: bool, paddle.bfloat16: np.float16}
"""NumPy's types of the same width."""


def save(tensors: dict[str, paddle.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Encode tensors as the bytes of a safetensors file.

    Args:
        tensors: Name to dense tensor, on any device and in any memory layout.
        metadata: Free text by key.

    Returns:
        The content of a file.

    Raises:
        ValueError: If `tensors` is not a dict of tensors.
        DtypeError: If the format has no such dtype (also a TypeError).
        UnsupportedError: If a tensor is sparse or has no memory (also a ValueError).
        TypeError: If a name or metadata is not text.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
    """
    return files.encode(_to_write(tensors), metadata)


def save_file(
    tensors: dict[str, paddle.Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save tensors to a safetensors file. It appears complete or not at all.

    Args:
        tensors: Name to dense tensor, on any device and in any memory layout. They must not change until this
            returns.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; in `tensorkeep.save` it is on.

    Raises:
        ValueError: If `tensors` is not a dict of tensors.
        DtypeError: If the format has no such dtype (also a TypeError).
        UnsupportedError: If a tensor is sparse or has no memory (also a ValueError).
        TypeError: If a name or metadata is not text, or `filename` is not a path.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    files.write(_to_write(tensors), filename, metadata, durable=durable)


def load(data: bytes, device: str = "cpu") -> dict[str, paddle.Tensor]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.
        device: The device for the tensors, such as `"gpu:0"`.

    Returns:
        Name to tensor, in the order of the bytes in the file. The tensors own their memory.

    Raises:
        TypeError: If `data` is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If Paddle has no such dtype (also a TypeError).
        LimitError: If a tensor has more dimensions than Paddle allows.
        DeviceError: If the device is not on this machine (also a RuntimeError).
    """
    return files.decode(data, "paddle", device)


def load_file(
    filename: str | os.PathLike[str], device: str = "cpu", *, backend: str = "auto"
) -> dict[str, paddle.Tensor]:
    """Load all tensors of a safetensors file.

        tensors = load_file("model.safetensors", device="gpu:0")

    On the CPU, tensors of a mapped file are views of a private mapping: the disk is read when an element is first
    used, and writing to a tensor never reaches the file.

    Args:
        filename: The file.
        device: The device for the tensors, such as `"gpu:0"`.
        backend: How to read: `"mmap"`, `"pread"`, or `"auto"`, which maps the file unless it is on a network or FUSE
            file system.

    Returns:
        Name to tensor, in the order of the bytes in the file.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If Paddle has no such dtype (also a TypeError).
        LimitError: If a tensor has more dimensions than Paddle allows.
        DeviceError: If the device is not on this machine (also a RuntimeError).
        TensorkeepError: If `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
    """
    return files.read(filename, "paddle", device, backend=backend)


def _to_write(tensors: dict[str, paddle.Tensor]) -> dict[str, TensorToWrite]:
    check_tensors(tensors, paddle.Tensor, "paddle.Tensor")
    return described(tensors)


def _np2paddle(numpy_dict: dict[str, Any], device: str = "cpu") -> dict[str, paddle.Tensor]:
    """Make tensors of NumPy arrays, in place."""
    for name, array in numpy_dict.items():
        numpy_dict[name] = paddle.to_tensor(array, place=device)
    return numpy_dict


def _paddle2np(paddle_dict: dict[str, Any]) -> dict[str, Any]:
    """Make NumPy arrays of tensors, in place."""
    for name, tensor in paddle_dict.items():
        paddle_dict[name] = tensor.detach().cpu().numpy()
    return paddle_dict


def _getdtype(dtype_str: str) -> Any:
    """Return Paddle's dtype for a name of the format; KeyError if it has none."""
    return _TYPES[dtype_str]


def _view2paddle(safeview: Iterable[tuple[str, Mapping[str, Any]]], device: str) -> dict[str, paddle.Tensor]:
    """Make tensors of what `deserialize` returns, over the same memory on the CPU."""
    return files.over_memory(safeview, "paddle", device)


def _to_ndarray(tensor: paddle.Tensor, name: str) -> tuple[npt.NDArray[Any], Any]:
    """Return the bytes of a contiguous tensor, and the tensor on the CPU that holds them."""
    if not tensor.is_contiguous():
        raise ValueError(strided_text(name))
    tensor = tensor if tensor.place.is_cpu_place() else tensor.cpu()
    buffers = list(described({name: tensor})[name].buffers())
    if not buffers:
        return np.empty(0), 0
    return np.frombuffer(buffers[0], np.uint8), tensor


def _flatten(tensors: dict[str, paddle.Tensor], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """Describe contiguous tensors for `serialize`."""
    check_tensors(tensors, paddle.Tensor, "paddle.Tensor")
    flattened = {}
    for name, tensor in tensors.items():
        data, owner = _to_ndarray(tensor, name)
        keep_alive_buffer.append((data, owner))
        flattened[name] = TensorSpec(
            dtype=str(tensor.dtype).rpartition(".")[2],
            shape=tensor.shape,
            data_ptr=data.ctypes.data,
            data_len=data.nbytes,
        )
    return flattened
