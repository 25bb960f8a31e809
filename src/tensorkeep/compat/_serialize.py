"""`serialize`, `serialize_file`, `deserialize` and `TensorSpec`: the reference's raw layer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tensorkeep.arrays import StreamedTensor, TensorToWrite
from tensorkeep.arrays.in_memory import TensorInMemory
from tensorkeep.collector import PausedCollector
from tensorkeep.compat import files
from tensorkeep.compat.wording import (
    DTYPE_NAMES,
    check_content,
    check_instance,
    check_names,
    unknown_dtype_text,
)
from tensorkeep.dtypes import BY_NAME, BY_TORCH
from tensorkeep.errors import DtypeError, FormatError
from tensorkeep.formats.safetensors import read_header
from tensorkeep.kinds import OpenOptions, by_environment
from tensorkeep.transport import MemorySource


class TensorSpec:
    """A tensor in memory, described for `serialize` and `serialize_file`.

    The memory at `data_ptr` must stay valid until they return.

    Args:
        dtype: The dtype's name in torch and NumPy, such as `"float32"`.
        shape: Elements along each dimension; `"float4_e2m1fn_x2"` counts two as one, as torch does.
        data_ptr: Address of the first byte of a C-contiguous, little-endian buffer.
        data_len: Size of the buffer in bytes.

    Raises:
        DtypeError: If the format has no such dtype.
        OverflowError: If an extent is negative.
        TypeError: If the shape is not a sequence of integers.
    """

    __slots__ = ("_data_len", "_data_ptr", "_dtype", "_shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        check_instance(dtype, "dtype", str)
        if dtype not in DTYPE_NAMES:
            raise DtypeError(unknown_dtype_text(dtype))
        extents = [extent.__index__() for extent in shape]
        if any(extent < 0 for extent in extents):
            raise OverflowError("can't convert negative int to unsigned")
        if dtype == "float4_e2m1fn_x2" and extents:
            extents[-1] *= 2
        self._dtype = BY_TORCH[dtype].name
        self._shape = extents
        self._data_ptr = data_ptr
        self._data_len = data_len

    @property
    def dtype(self) -> str:
        """The dtype's name in the format, such as `"F32"`."""
        return self._dtype

    @property
    def shape(self) -> list[int]:
        """Elements along each dimension, as the header will say; F4 elements are counted one by one."""
        return list(self._shape)

    @property
    def data_ptr(self) -> int:
        """Address of the first byte."""
        return self._data_ptr

    @property
    def data_len(self) -> int:
        """Size of the buffer in bytes."""
        return self._data_len

    def __repr__(self) -> str:
        return (
            f"TensorSpec(dtype='{self._dtype}', shape={self._shape}, data_ptr={self._data_ptr}, "
            f"data_len={self._data_len})"
        )

    def tensor_to_write(self) -> TensorToWrite:
        """Describe the tensor for writing.

        Raises:
            FormatError: If the buffer's size does not fit dtype and shape.
        """
        dtype = BY_NAME[self._dtype]
        if prod(self._shape) * dtype.bits != self._data_len * 8:
            raise FormatError(
                "Error while serializing: invalid shape, data type, or offset for tensor",
                expected=f"{prod(self._shape) * dtype.bits // 8:,} bytes for {self._dtype} {self._shape}",
                found=f"{self._data_len:,} bytes",
            )
        if not self._data_len:
            return StreamedTensor(dtype, tuple(self._shape), 0, lambda: iter(()))
        return TensorInMemory(dtype, tuple(self._shape), self._data_len, self._data_ptr, None)


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """Encode tensors as the bytes of a safetensors file.

    Args:
        tensor_dict: Name to description.
        metadata: Free text by key.

    Returns:
        The content of a file.

    Raises:
        TypeError: If an argument is of the wrong type.
        FormatError: If a buffer's size does not fit its dtype and shape.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
    """
    return files.encode(_to_write(tensor_dict), metadata)


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors to a safetensors file. It appears complete or not at all.

    Args:
        tensor_dict: Name to description.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key.

    Raises:
        TypeError: If an argument is of the wrong type.
        FormatError: If a buffer's size does not fit its dtype and shape.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    files.write(_to_write(tensor_dict), filename, metadata)


def _to_write(tensor_dict: Mapping[str, TensorSpec]) -> dict[str, TensorToWrite]:
    check_names(tensor_dict)
    for spec in tensor_dict.values():
        check_instance(spec, "tensor_dict", TensorSpec)
    return {name: spec.tensor_to_write() for name, spec in tensor_dict.items()}


def deserialize(bytes: bytes) -> list[tuple[str, dict[str, Any]]]:  # noqa: A002 - the reference's name
    """Decode the bytes of a safetensors file.

    Args:
        bytes: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name and `{"dtype": str, "shape": list of int, "data": bytearray}`, in the order of the bytes in the file.

    Raises:
        TypeError: If `bytes` is of another type.
        HeaderError: If it is not a whole safetensors file.
        UnsupportedError: If the policy in the environment demands a signature, which bytes cannot have.
    """
    content = check_content(bytes)
    by_environment(OpenOptions(), content)
    source = MemorySource(content)
    with PausedCollector():
        header = read_header(source, prefix="Error while deserializing: ")
        view = memoryview(content).cast("B")[header.data_start :]
        return [
            (
                name,
                {
                    "dtype": entry.dtype,
                    "shape": list(entry.shape),
                    "data": bytearray(view[slice(*entry.data_offsets)]),
                },
            )
            for name, entry in header.entries.items()
        ]
