"""tensorkeep keeps tensors safe: it stores, inspects, moves and loads them without ever running code from a file.

    tensorkeep.open(path)       a read-only mapping of name to lazy tensor; `file["w"][10:20, ::2]` reads those rows
    tensorkeep.load(path)       all tensors of a file
    tensorkeep.save(t, path)    save tensors, complete or not at all

    tensorkeep.torch, tensorkeep.numpy                  the functions of safetensors.torch and safetensors.numpy
    tensorkeep.safe_open, serialize, deserialize, …     those of safetensors
    tensorkeep.install_as_safetensors()                 and all of it under their name, for libraries that import it

    tensorkeep.errors           every error, one tree
    tensorkeep.transport        where are the bytes?        files, memory, file objects; published whole or not at all
    tensorkeep.formats          what do they mean?          the safetensors format
    tensorkeep.arrays           who holds the tensor?       NumPy, torch
    tensorkeep.tensors          one file, where these meet  lazy tensors, selections, writing

`import tensorkeep` loads none of this: names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorkeep.compat import (
        TensorSpec,
        deserialize,
        safe_open,
        serialize,
        serialize_file,
    )
    from tensorkeep.errors import SafetensorError, TensorkeepError
    from tensorkeep.install import install_as_safetensors
    from tensorkeep.tensors import LazyTensor, TensorFile, load, save
    from tensorkeep.tensors import open_file as open

__version__ = "0.1.0"

__all__ = [
    "LazyTensor",
    "SafetensorError",
    "TensorFile",
    "TensorSpec",
    "TensorkeepError",
    "__version__",
    "deserialize",
    "install_as_safetensors",
    "load",
    "open",
    "safe_open",
    "save",
    "serialize",
    "serialize_file",
]

_HOMES = {
    "LazyTensor": ("tensors", "LazyTensor"),
    "SafetensorError": ("errors", "SafetensorError"),
    "TensorFile": ("tensors", "TensorFile"),
    "TensorSpec": ("compat", "TensorSpec"),
    "TensorkeepError": ("errors", "TensorkeepError"),
    "deserialize": ("compat", "deserialize"),
    "install_as_safetensors": ("install", "install_as_safetensors"),
    "load": ("tensors", "load"),
    "open": ("tensors", "open_file"),
    "safe_open": ("compat", "safe_open"),
    "save": ("tensors", "save"),
    "serialize": ("compat", "serialize"),
    "serialize_file": ("compat", "serialize_file"),
}
"""Each public name, and the module and name that it stands for."""


_MODULES = (
    "arrays",
    "compat",
    "dtypes",
    "entries",
    "errors",
    "formats",
    "limits",
    "numpy",
    "tensors",
    "torch",
    "transport",
)
"""The public modules."""


def __getattr__(name: str) -> Any:
    """Import a public name or module on first use (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, *_MODULES]
