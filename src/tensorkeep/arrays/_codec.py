"""Values of array libraries taken apart into tensors and plain data, and put together, by the library they are of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tensorkeep.arrays._base import ArrayAdapter, EncodedObject, FindClass
from tensorkeep.arrays._registry import adapter_for, host_adapter, tensor_to_write
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, MissingDependencyError

_LIBRARIES = ("torch", "numpy")

_KNOWN_PACKAGE = "torchao."
"""The one package that has known classes: any other name costs no import."""

_plain_classes: dict[type, tuple[str, Callable[[Any], bool]]] = {}
"""Classes of dense tensors: the library of each, and what says whether a file holds a tensor of it as it is."""


def plain_library(value: Any) -> str | None:
    """Return the library of a dense tensor that a file holds as it is."""
    found = _plain_classes.get(type(value)) or _learnt(type(value))
    return found[0] if found is not None and found[1](value) else None


def _learnt(kind: type) -> tuple[str, Callable[[Any], bool]] | None:
    """Look among the classes of libraries that were imported since."""
    known = {library for library, _ in _plain_classes.values()}
    for library in _LIBRARIES:
        if library in sys.modules and library not in known:
            classes = host_adapter(library).plain_classes
            _plain_classes.update({plain: (library, check) for plain, check in classes.items()})
    return _plain_classes.get(kind)


def attributes_of(tensor: Any) -> dict[str, Any]:
    """Return what is to be said of a dense tensor beside its elements."""
    library = plain_library(tensor)
    return {} if library is None else host_adapter(library).attributes_of(tensor)


def encode_object(value: Any) -> EncodedObject | None:
    """Take apart what is data of an array library but no dense tensor."""
    for library in _LIBRARIES:
        if library in sys.modules:
            composed = host_adapter(library).encode_object(value)
            if composed is not None:
                return composed
    return None


def decode_object(composed: EncodedObject, *, device: Any = "cpu", find_class: FindClass) -> Any:
    """Put together what `encode_object` gave. All that it says is checked before the library trusts it."""
    if composed.library not in _LIBRARIES:
        raise FormatError("a value is of no array library", found=repr(composed.library))
    if any(type(part) is EncodedObject for part in composed.parts.values()):
        return composed
    adapter = adapter_for(composed.library, device if composed.library == "torch" else "cpu")
    parts = {name: _held_by(adapter, part) for name, part in composed.parts.items()}
    made = adapter.decode_object(composed.kind, parts, composed.settings, find_class)
    return composed if made is None else made


def _held_by(adapter: ArrayAdapter, part: Any) -> Any:
    """Return a tensor of the adapter's library, a copy if it is of another one."""
    library = plain_library(part)
    if library in {None, adapter.name}:
        return part
    host = tensor_to_write(part, "")
    data = bytearray().join(host.buffers())
    entry = TensorEntry(host.dtype.name, host.shape, (0, len(data)))
    return adapter.place(adapter.views(memoryview(data), {"": entry}, 0))[""]


def known_class(name: str) -> type | None:
    """Return a class that may be rebuilt without being allowed by the caller."""
    if not name.startswith(_KNOWN_PACKAGE):
        return None
    try:
        return host_adapter("torch").known_class(name)
    except MissingDependencyError:
        return None
