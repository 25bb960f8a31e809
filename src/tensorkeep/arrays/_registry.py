"""The table of array libraries: a new one is a folder and a record here.

This is the one place that imports code by name, so that a library is imported when the first tensor of it is made.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any, Final

from tensorkeep.arrays._arithmetic import Arithmetic
from tensorkeep.arrays._base import DenseArrays, Library, ObjectCodec, TensorToWrite
from tensorkeep.errors import DeviceError, MissingDependencyError, UnsupportedError

DEFAULT_FRAMEWORK: Final = "numpy"
"""Tensors come out in it if neither the caller nor the file names another."""

LIBRARIES: Final = {
    library.name: library
    for library in (
        Library(
            name="torch",
            aliases=("pt", "pytorch"),
            module="torch",
            tensor_classes=("Tensor",),
            arrays="tensorkeep.arrays.torch._dense:TorchArrays",
            codec="tensorkeep.arrays.torch._codec:TorchCodec",
            install='pip install "tensorkeep[torch]"',
            has_devices=True,
            can_share_memory=True,
            attributes=frozenset({"class", "grad", "order"}),
            known_packages=("torchao",),
            gives_views=True,
        ),
        Library(
            name="numpy",
            aliases=("np",),
            module="numpy",
            tensor_classes=("ndarray", "generic"),
            arrays="tensorkeep.arrays.numpy._dense:NumpyArrays",
            codec="tensorkeep.arrays.numpy._codec:NumpyCodec",
            install="pip install numpy",
            can_share_memory=True,
            attributes=frozenset({"order"}),
        ),
        Library(
            name="jax",
            module="jax",
            tensor_classes=("Array",),
            arrays="tensorkeep.arrays.jax._dense:JaxArrays",
            codec="tensorkeep.arrays.jax._codec:JaxCodec",
            install="pip install jax",
            has_devices=True,
            is_immutable=True,
            alignment=64,
            attributes=frozenset({"weak"}),
            as_reference="flax",
        ),
        Library(
            name="flax",
            module="jax",
            tensor_classes=(),
            arrays="tensorkeep.arrays.jax._dense:FlaxArrays",
            install="pip install jax",
            has_devices=True,
            is_immutable=True,
            alignment=64,
        ),
        Library(
            name="tensorflow",
            aliases=("tf",),
            module="tensorflow",
            tensor_classes=("Tensor", "Variable"),
            arrays="tensorkeep.arrays.tensorflow._dense:TensorflowArrays",
            codec="tensorkeep.arrays.tensorflow._codec:TensorflowCodec",
            install="pip install tensorflow",
            has_devices=True,
            is_immutable=True,
            alignment=64,
            attributes=frozenset({"class", "grad"}),
        ),
        Library(
            name="mlx",
            module="mlx.core",
            tensor_classes=("array",),
            arrays="tensorkeep.arrays.mlx._dense:MlxArrays",
            install='pip install mlx, or pip install "mlx[cpu]" on Linux',
            has_devices=True,
            copies=True,
        ),
        Library(
            name="paddle",
            module="paddle",
            tensor_classes=("Tensor",),
            arrays="tensorkeep.arrays.paddle._dense:PaddleArrays",
            codec="tensorkeep.arrays.paddle._codec:PaddleCodec",
            install="pip install paddlepaddle",
            has_devices=True,
            attributes=frozenset({"class", "grad"}),
        ),
        Library(
            name="cupy",
            module="cupy",
            tensor_classes=("ndarray",),
            arrays="tensorkeep.arrays.cupy._dense:CupyArrays",
            install="pip install cupy-cuda12x",
            has_devices=True,
            copies=True,
        ),
    )
}
"""Name to library."""


def find_library(framework: str) -> Library | None:
    """Return the library that goes by a name or alias."""
    found = LIBRARIES.get(framework)
    return found or next((library for library in LIBRARIES.values() if framework in library.aliases), None)


def library_for(framework: str) -> Library:
    """Return the library that goes by a name or alias, without importing it; refuse any other name."""
    library = find_library(framework)
    if library is None:
        names = (name for known in LIBRARIES.values() for name in (known.name, *known.aliases))
        raise UnsupportedError(f"framework {framework} is invalid", expected="one of " + ", ".join(sorted(names)))
    return library


def device_for(framework: str, device: Any) -> Any:
    """Return the device for tensors of a library: the CPU if the library has no devices."""
    return device if library_for(framework).has_devices else "cpu"


def adapter_for(framework: str, device: Any = "cpu") -> DenseArrays:
    """Return a library's dense tensors on a device, importing the library if need be."""
    library = library_for(framework)
    if not library.has_devices and device is not None and str(device) != "cpu":
        raise DeviceError(f"Device {device} is not supported for framework {library.name}")
    make: Callable[..., DenseArrays] = _load(library, library.arrays)
    return make(device) if library.has_devices else make()


def refuse_unused_device(frameworks: Collection[str], device: Any) -> None:
    """Refuse a device to which none of the tensors can go."""
    libraries = [library for name in frameworks if (library := find_library(name)) is not None]
    if libraries and not any(library.has_devices for library in libraries) and str(device) not in {"cpu", "None"}:
        raise DeviceError(
            f"no tensor can go to the device {str(device)!r:.100}",
            expected="tensors of " + ", ".join(known.name for known in LIBRARIES.values() if known.has_devices),
            found=f"only arrays of {libraries[0].name}",
            hint='Pass framework="torch" to make tensors of them, or leave out device=',
        )


@cache
def host_arrays(library: str) -> DenseArrays:
    """Return a library's dense tensors on the CPU, always the same object."""
    return adapter_for(library)


def numpy_arithmetic() -> Arithmetic:
    """Return NumPy's operations for formulas."""
    arrays: Any = host_arrays("numpy")
    ops: Arithmetic = arrays.arithmetic()
    return ops


@cache
def codec_for(framework: str) -> ObjectCodec:
    """Return the codec of a library's own objects, which finds none if the library has none."""
    library = library_for(framework)
    codec: ObjectCodec = _load(library, library.codec)() if library.codec else ObjectCodec()
    return codec


def _load(library: Library, path: str) -> Any:
    """Return a class by the name of its module, which imports the library."""
    module, _, class_name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != library.module.split(".")[0]:
            raise
        raise MissingDependencyError(
            f"{library.name} is not installed", hint=f"Install it: {library.install}"
        ) from error


def imported_libraries() -> Iterator[Library]:
    """Give the libraries that have been imported: only these can have tensors."""
    return (library for library in LIBRARIES.values() if sys.modules.get(library.module) is not None)


_met: Final[dict[type, Library]] = {}
"""Class to library, for the classes of tensors that were met."""


def library_of(value: Any) -> Library | None:
    """Return the library that a value is a tensor of, of any kind."""
    kind = type(value)
    if kind not in _met:
        for library in imported_libraries():
            if issubclass(kind, _tensor_classes(library.module, library.tensor_classes)):
                _met[kind] = library
                break
    return _met.get(kind)


@cache
def _tensor_classes(module: str, names: tuple[str, ...]) -> tuple[type, ...]:
    return tuple(getattr(sys.modules[module], name) for name in names)


def is_tensor(value: Any) -> bool:
    """Say whether a value is a tensor of a known library, of any kind."""
    return library_of(value) is not None


def tensor_to_write(tensor: Any, name: str) -> TensorToWrite:
    """Describe a tensor of any known library for writing."""
    library = library_of(tensor)
    if library is not None:
        return host_arrays(library.name).tensor_to_write(tensor, name)
    raise UnsupportedError(
        f"`{name}` is not a tensor",
        tensor=name,
        expected="a NumPy array or a tensor of "
        + ", ".join(known.name for known in LIBRARIES.values() if known.tensor_classes and known.name != "numpy"),
        found=type(tensor).__name__,
    )
