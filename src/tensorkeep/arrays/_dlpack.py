"""Objects of other libraries that export their memory through DLPack, as NumPy arrays."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Final

from tensorkeep.arrays._base import TensorToWrite
from tensorkeep.arrays._registry import host_arrays, library_of, tensor_to_write
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.errors import UnsupportedError

_NAMES: Final = {
    (4, 16): "BF16",
    (10, 8): "F8_E4M3",
    (11, 8): "F8_E4M3FNUZ",
    (12, 8): "F8_E5M2",
    (13, 8): "F8_E5M2FNUZ",
    (14, 8): "F8_E8M0",
}
"""Dtypes that NumPy does not take through DLPack, by DLPack's code of the kind and the bits of an element."""

_UNSIGNED: Final = 1
"""DLPack's code of whole numbers that have no sign."""

_TENSORS_AT: Final = {b"dltensor": 0, b"dltensor_versioned": 32}
"""Where the description of the tensor is in what a capsule of this name points to."""

_ELEMENTS_AT: Final = 20
"""Where the code of the elements' kind, and after it their bits, are in the description of a tensor."""


def exports_memory(value: Any) -> bool:
    """Say whether a value is of no known library and exports its memory through DLPack."""
    return hasattr(type(value), "__dlpack__") and library_of(value) is None


def any_tensor_to_write(tensor: Any, name: str) -> TensorToWrite:
    """Describe a tensor for writing, also one of an unknown library that exports its memory."""
    if not exports_memory(tensor):
        return tensor_to_write(tensor, name)
    import numpy as np

    exported = _InBits(tensor)
    try:
        array: Any = np.from_dlpack(exported)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"tensor `{name}` cannot be taken through DLPack",
            tensor=name,
            expected="memory on the CPU, of a dtype that the file can hold",
            found=f"{type(tensor).__name__}: {error!s:.300}",
            hint="Save a NumPy array of its elements",
        ) from error
    numpy = host_arrays("numpy")
    if exported.dtype is not None:
        array = numpy.from_elements(array, exported.dtype)
    return numpy.tensor_to_write(array, name)


class _InBits:
    """A tensor that exports elements of a dtype which NumPy lacks as whole numbers of as many bits.

    Attributes:
        dtype: The dtype of such elements, once they are exported; None for others.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.dtype: DType | None = None

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._tensor.__dlpack__(**options)
        elements = _Elements.of(capsule)
        if elements is not None and (name := _NAMES.get((elements.code, elements.bits))) is not None:
            self.dtype = BY_NAME[name]
            elements.code = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._tensor.__dlpack_device__()
        return device


class _Elements(ctypes.Structure):
    """The description of the elements in a capsule, which its consumer may change."""

    code: int
    bits: int

    _fields_: ClassVar = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8)]

    @classmethod
    def of(cls, capsule: Any) -> _Elements | None:
        """Return what a capsule says; None if it is not one of DLPack's, which NumPy refuses."""
        for name, at in _TENSORS_AT.items():
            if _is_capsule(capsule, name):
                return cls.from_address(_pointer_of(capsule, name) + at + _ELEMENTS_AT)
        return None


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_capsule.restype = ctypes.c_int

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer_of.restype = ctypes.c_void_p
