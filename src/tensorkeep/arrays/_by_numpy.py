"""Dense tensors of a library that is given and gives NumPy arrays: all that such a library adds is a few hooks.

Bytes become NumPy arrays first, views where that can be, and the library takes these over: without a copy if it can
use memory that is not its own, else by copying. What is written of a tensor is what is written of its NumPy array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._alignment import aligned_views, at_multiples_of
from tensorkeep.arrays._base import DenseArrays, Library, TensorToWrite
from tensorkeep.arrays._registry import host_arrays, library_for
from tensorkeep.arrays.elements import known_dtype
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError

Array = npt.NDArray[Any]


class ArraysByNumpy(ABC):
    """`DenseArrays` of such a library; a subclass names it, and overrides the hooks at the end."""

    framework: ClassVar[str]
    is_on_host = True

    @cached_property
    def library(self) -> Library:
        """The library's record."""
        return library_for(self.framework)

    @cached_property
    def _numpy(self) -> DenseArrays:
        return host_arrays("numpy")

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Any]:
        """Make tensors on the CPU of a buffer, without a copy where the library can share its memory."""
        checked: set[str] = set()
        for name, entry in entries.items():
            if entry.dtype not in checked:
                self._refuse_dtype(known_dtype(name, entry))
                checked.add(entry.dtype)
        if self.library.alignment > 1 and not any(ALL_BY_NAME[dtype].is_packed for dtype in checked):
            return self._adopt(aligned_views(self._numpy, buffer, entries, base, self.library.alignment))
        return self._adopt_aligned(self._numpy.views(buffer, entries, base))

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Leave tensors where they are."""
        return tensors

    def from_elements(self, elements: Array, dtype: DType) -> Any:
        """Give elements their dtype, on the device."""
        self._refuse_dtype(dtype)
        array = np.require(self._numpy.from_elements(elements, dtype), requirements=["W"])
        array = array if array.flags.c_contiguous else array.copy("C")
        return self.place(self._adopt_aligned({"": array}))[""]

    def cast(self, tensor: Any, dtype: DType) -> Any:
        """Convert to another floating-point dtype, as NumPy's arrays are converted."""
        converted = self._numpy.cast(self.as_numpy(tensor, ""), dtype)
        return self.from_elements(converted.view(dtype.bits_name), dtype)

    def memory_of(self, dtype: DType) -> Literal["shared", "copied", "converted"]:
        """Say whether a tensor shares the memory it is made of."""
        if dtype.is_packed:
            return "converted"
        return "copied" if self.library.copies else "shared"

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe a tensor for writing."""
        return self._numpy.tensor_to_write(self.as_numpy(tensor, name), name)

    def numpy_dtype(self, dtype: DType) -> np.dtype[Any]:
        """Return the dtype of the arrays that the library is given."""
        found: np.dtype[Any] = self._numpy.from_elements(np.zeros(0, dtype.bits_name), dtype).dtype
        return found

    @abstractmethod
    def has_dtype(self, dtype: DType) -> bool:
        """Say whether the library has a dtype."""

    @abstractmethod
    def as_numpy(self, tensor: Any, name: str) -> Array:
        """Return a tensor as an array: over its memory if that can be, else a copy."""

    @abstractmethod
    def _adopt(self, arrays: dict[str, Array]) -> dict[str, Any]:
        """Make tensors on the CPU of C-contiguous arrays that nobody else changes, at suitable addresses."""

    def _hint(self, dtype: DType) -> str:
        """Say what to do with a tensor of a dtype that the library lacks."""
        wider = "F64" if dtype.bits == 64 else "F32"
        if dtype.is_float and dtype.name != wider:
            return f'Cast it: tensorkeep.open(path, framework="{self.framework}").cast("{wider}")'
        return 'Load it with framework="numpy", and convert the array'

    def _refuse_dtype(self, dtype: DType) -> None:
        if not self.has_dtype(dtype):
            raise DtypeError(
                f"{self.framework} has no dtype for {dtype.name}", found=dtype.name, hint=self._hint(dtype)
            )

    def _adopt_aligned(self, arrays: dict[str, Array]) -> dict[str, Any]:
        if self.library.alignment == 1:
            return self._adopt(arrays)
        return self._adopt(at_multiples_of(self.library.alignment, arrays))
