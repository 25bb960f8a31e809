"""The adapter for a framework's name, or for a tensor that somebody hands over."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

from tensorkeep.arrays._base import ArrayAdapter, TensorToWrite
from tensorkeep.errors import MissingDependencyError, UnsupportedError

FRAMEWORKS: dict[str, str] = {
    "np": "numpy",
    "numpy": "numpy",
    "pt": "torch",
    "torch": "torch",
    "pytorch": "torch",
}
"""The names that safetensors and its users give the array libraries, and ours for each."""


_ADAPTERS = {
    "numpy": ("tensorkeep.arrays.numpy._adapter", "NumpyAdapter"),
    "torch": ("tensorkeep.arrays.torch._adapter", "TorchAdapter"),
}
"""Module and class of each adapter: the one place where own modules are imported by name, on first use."""


def check_framework(framework: str) -> None:
    """Refuse a name that no array library has, without importing any."""
    if framework not in FRAMEWORKS:
        raise UnsupportedError(f"framework {framework} is invalid", expected="one of " + ", ".join(FRAMEWORKS))


def adapter_for(framework: str, device: Any = "cpu") -> ArrayAdapter:
    """Return the adapter for an array library, importing it if need be."""
    check_framework(framework)
    name = FRAMEWORKS[framework]
    make = _adapter_class(name)
    adapter: ArrayAdapter
    if name == "torch":
        adapter = make(device)
        return adapter
    if device is not None and str(device) != "cpu":
        raise UnsupportedError(f"Device {device} is not supported for framework {name}")
    adapter = make()
    return adapter


@cache
def _adapter_class(name: str) -> Any:
    """Import the file of an array library, which imports the library."""
    module, class_name = _ADAPTERS[name]
    try:
        return getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingDependencyError(
            f"{name} is not installed", hint=f'Install it: pip install "tensorkeep[{name}]"'
        ) from error


def tensor_to_write(tensor: Any, name: str) -> TensorToWrite:
    """Describe a tensor of any supported library for writing."""
    library = _library_of(tensor)
    if library is not None:
        return host_adapter(library).tensor_to_write(tensor, name)
    raise UnsupportedError(
        f"`{name}` is not a tensor",
        tensor=name,
        expected="a NumPy array or a torch tensor",
        found=type(tensor).__name__,
    )


def is_tensor(value: Any) -> bool:
    """Say whether a value is a tensor of a supported library, of whatever kind."""
    return _library_of(value) is not None


def _library_of(value: Any) -> str | None:
    for library, classes in _TENSOR_CLASSES.items():
        module = sys.modules.get(library)
        if module is not None and isinstance(value, tuple(getattr(module, name) for name in classes)):
            return library
    return None


@cache
def host_adapter(library: str) -> ArrayAdapter:
    """Return the adapter for a library's tensors in the CPU's memory, always the same one."""
    return adapter_for(library)


_TENSOR_CLASSES = {"torch": ("Tensor",), "numpy": ("ndarray", "generic")}
"""What each library calls its tensors; a library that nobody imported has none."""
