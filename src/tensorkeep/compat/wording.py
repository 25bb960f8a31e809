"""Arguments checked, and errors worded, as by the reference."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tensorkeep.arrays import Library, find_library
from tensorkeep.buffers import Buffer
from tensorkeep.errors import TensorkeepError, TransportError
from tensorkeep.transport import BACKENDS

_DEVICES = re.compile(r"(cpu|mps|(cuda|xpu|npu|hpu|xla|mlu|musa)(:\d+)?)")


def _is_not(value: Any, kind: str) -> str:
    return (
        f"'None' is not an instance of '{kind}'"
        if value is None
        else (f"'{type(value).__name__}' object is not an instance of '{kind}'")
    )


def check_instance(value: Any, argument: str, kind: type) -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"argument '{argument}': {_is_not(value, kind.__name__)}")


def check_path(value: Any) -> str:
    """Return a path as text."""
    if isinstance(value, bytes):
        raise TypeError("argument 'filename': 'bytes' object is not an instance of 'str'")
    try:
        path = os.fspath(value)
    except TypeError as error:
        raise TypeError(f"argument 'filename': {error}") from None
    check_instance(path, "filename", str)
    return str(path)


def check_content(value: Any) -> Buffer:
    """Return the content of a file."""
    if isinstance(value, (bytearray, memoryview)):
        return value
    check_instance(value, "bytes", bytes)
    content: bytes = value
    return content


def check_names(tensors: Any) -> None:
    """Refuse anything but a dict with names as keys."""
    check_instance(tensors, "tensor_dict", dict)
    for name in tensors:
        if type(name) is not str:
            check_instance(name, "tensor_dict", str)


def check_tensors(tensors: Any, kind: type, kind_name: str) -> None:
    """Refuse anything but a dict of tensors of one library."""
    if not isinstance(tensors, dict):
        raise ValueError(  # noqa: TRY004 - the reference's class
            f"Expected a dict of [str, {kind_name}] but received {type(tensors)}"
        )
    for name, tensor in tensors.items():
        if not isinstance(tensor, kind):
            raise ValueError(  # noqa: TRY004 - the reference's class
                f"Key `{name}` is invalid, expected {kind_name} but received {type(tensor)}"
            )


def check_metadata(metadata: Any) -> Mapping[str, str] | None:
    """Return metadata that is text by key, or None."""
    if metadata is None:
        return None
    check_instance(metadata, "metadata", dict)
    for key, text in metadata.items():
        check_instance(key, "metadata", str)
        check_instance(text, "metadata", str)
    checked: dict[str, str] = metadata
    return checked


def check_count(value: Any) -> int:
    """Return a number of things, at least 1, from anything that is an integer."""
    count = operator.index(value)
    if count < 0:
        raise OverflowError("can't convert negative int to unsigned")
    return max(1, count)


def check_framework(framework: Any) -> Library:
    """Return the library that a framework's name means."""
    check_instance(framework, "framework", str)
    library = find_library(framework)
    if library is None:
        raise TensorkeepError(f"framework {framework} is invalid")
    return find_library(library.as_reference) or library


def check_device(device: Any, library: Library) -> Any:
    """Return a device that the library understands."""
    if device is None:
        return "cpu"
    if library.has_devices and not library.gives_views:
        return device  # the library itself knows its devices
    if not isinstance(device, str | int):  # a library's own object, such as a torch.device
        device = str(device)
    is_index = isinstance(device, int) and not isinstance(device, bool) and device >= 0
    if not is_index and not (isinstance(device, str) and _DEVICES.fullmatch(device)):
        raise TensorkeepError(f"device {device} is invalid")
    if device != "cpu" and not library.has_devices:
        spelled = f"cuda:{device}" if is_index else device if ":" in device or device == "mps" else f"{device}:0"
        raise TensorkeepError(f"Device {spelled} is not supported for framework {library.name}")
    return device


def check_backend(backend: Any) -> Any:
    """Return the name of a backend."""
    check_instance(backend, "backend", str)
    if backend not in BACKENDS:
        raise TensorkeepError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    return backend


DTYPE_NAMES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32"),
    *("float64", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn_x2", "complex64"),
)
"""The dtype names that `TensorSpec` takes, in the order in which the reference lists them."""


def unknown_dtype_text(dtype: str) -> str:
    """Return the reference's words for a dtype that the format does not have."""
    return f'Unknown dtype "{dtype}". Supported dtypes: {", ".join(DTYPE_NAMES)}'


def strided_text(name: str) -> str:
    """Return the reference's words for a tensor whose elements are not in C order."""
    return (
        f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means you"
        " are trying to save tensors which are reference of each other in which case it's recommended to save"
        " only the full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to"
        " pack it before saving."
    )


@contextmanager
def writing_errors() -> Iterator[None]:
    """Reword the messages of failed writes as the reference begins them."""
    try:
        yield
    except TransportError as error:
        number = f" (os error {error.errno})" if error.errno is not None else ""
        fields = error.fields() | {"found": None}
        fields["message"] = f"Error while serializing: I/O error: {error.found or error.message}{number}"
        renamed: TensorkeepError = type(error)(**fields)
        if isinstance(renamed, OSError):
            renamed.errno = error.errno
        raise renamed from error
