"""Which library a value is of, and its objects encoded and decoded by that library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorkeep.arrays._base import EncodedObject, FindClass
from tensorkeep.arrays._registry import (
    LIBRARIES,
    adapter_for,
    codec_for,
    device_for,
    find_library,
    host_arrays,
    imported_libraries,
    library_of,
    tensor_to_write,
)
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, MissingDependencyError

_plain_classes: dict[type, tuple[str, Callable[[Any], bool]]] = {}
"""Class of dense tensors to its library, and a test whether a file can hold one of its tensors as it is."""

_learnt: set[str] = set()
"""Libraries whose classes are in `_plain_classes`."""


def plain_library(value: Any) -> str | None:
    """Return the library of a dense tensor that a file can hold as it is; None for any other value."""
    found = _plain_classes.get(type(value)) or _learn(type(value))
    return found[0] if found is not None and found[1](value) else None


def _learn(kind: type) -> tuple[str, Callable[[Any], bool]] | None:
    """Look for a class in the libraries that were imported since."""
    for library in imported_libraries():
        if library.name not in _learnt:
            _learnt.add(library.name)
            classes = host_arrays(library.name).plain_classes
            _plain_classes.update({plain: (library.name, check) for plain, check in classes.items()})
    return _plain_classes.get(kind)


def encode_object(value: Any) -> EncodedObject | None:
    """Return an object of any library as tensors and plain data; None if it is not one."""
    for library in imported_libraries():
        encoded = codec_for(library.name).encode_object(value)
        if encoded is not None:
            return encoded
    return None


def decode_object(encoded: EncodedObject, *, device: Any = "cpu", find_class: FindClass) -> Any:
    """Return the object that was encoded; the encoded form itself if it needs a class that is not allowed."""
    if find_library(encoded.library) is None:
        raise FormatError(
            "an object is of an unknown array library",
            expected=" or ".join(LIBRARIES),
            found=repr(encoded.library),
        )
    if any(type(part) is EncodedObject for part in encoded.parts.values()):
        return encoded
    parts = {name: convert_to(encoded.library, part, device) for name, part in encoded.parts.items()}
    decoded = codec_for(encoded.library).decode_object(encoded.kind, parts, encoded.settings, find_class)
    return encoded if decoded is None else decoded


def convert_to(library: str, tensor: Any, device: Any = "cpu") -> Any:
    """Return a tensor of a library: a copy of one of another library; any other value as it is."""
    if plain_library(tensor) in {None, library}:
        return tensor
    adapter = adapter_for(library, device_for(library, device))
    described = tensor_to_write(tensor, "")
    data = bytearray().join(described.buffers())
    entry = TensorEntry(described.dtype.name, described.shape, (0, len(data)))
    return adapter.place(adapter.views(memoryview(data), {"": entry}, 0))[""]


def known_class(name: str) -> type | None:
    """Return a class that may be rebuilt without the caller allowing it."""
    package = name.partition(".")[0]
    for library in LIBRARIES.values():
        if package in library.known_packages:
            try:
                return codec_for(library.name).known_class(name)
            except MissingDependencyError:
                return None
    return None


def object_hint(value: Any) -> str:
    """Say what to do with an object that a library knows and that cannot be saved; nothing if none knows it."""
    hints = (codec_for(library.name).advice(value) for library in imported_libraries())
    return next(filter(None, hints), "")


def tensor_hint(tensor: Any) -> str:
    """Say what to do with a tensor that cannot be saved."""
    library = library_of(tensor)
    return "" if library is None else codec_for(library.name).hint(tensor)
