"""Tensors that share memory, also for libraries in which they cannot: there each is a copy (imports NumPy)."""

from __future__ import annotations

from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import DenseArrays, SharedMemory
from tensorkeep.arrays._registry import adapter_for, library_for
from tensorkeep.arrays.elements import aligned, resolve, unpack, within_numpys_limits
from tensorkeep.dtypes import DType
from tensorkeep.errors import LimitError
from tensorkeep.limits import MAX_COPIES, MAX_EXPANDED_NBYTES


def shared_memory_for(framework: str, device: Any = "cpu") -> SharedMemory:
    """Return what makes tensors of a library, on a device, over common memory."""
    adapter = adapter_for(framework, device)
    library = library_for(framework)
    if library.can_share_memory:
        return cast("SharedMemory", adapter)
    return _Copies(adapter, is_immutable=library.is_immutable)


class _Copies:
    """Gives each view memory of its own; equal ones are one tensor if that can never be noticed."""

    def __init__(self, adapter: DenseArrays, *, is_immutable: bool) -> None:
        self._adapter = adapter
        self._is_immutable = is_immutable
        self._made: dict[Any, tuple[npt.NDArray[np.uint8], Any]] = {}
        self._storages_nbytes = 0
        self._copies_nbytes = 0

    def storage(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Keep the bytes on the CPU until something is copied out of them."""
        self._storages_nbytes += data.nbytes
        return aligned(data)

    def view_of(
        self,
        storage: npt.NDArray[np.uint8],
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        is_conj: bool = False,
        is_neg: bool = False,
    ) -> Any:
        """Copy a view out of a storage."""
        key = (id(storage), dtype.name, offset, shape, strides, is_conj, is_neg)
        if key not in self._made or not self._is_immutable:
            copy = self._copy(storage, dtype, offset, shape, strides)
            resolve(copy, dtype, is_conj=is_conj, is_neg=is_neg)
            self._made[key] = storage, self._adapter.from_elements(copy, dtype)
        return self._made[key][1]

    def _copy(
        self,
        storage: npt.NDArray[np.uint8],
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> npt.NDArray[Any]:
        self._refuse_too_many(dtype.nbytes(prod(shape)))
        with within_numpys_limits("", shape):
            if dtype.is_packed:
                start, n_elements = offset * dtype.bits // 8, prod(shape)
                packed = storage[start : start + dtype.nbytes(n_elements)]
                return unpack(packed, dtype.bits, 0, n_elements).reshape(shape)
            steps = tuple(stride * dtype.itemsize for stride in strides)
            view = np.ndarray(shape, dtype.bits_name, storage.data, offset * dtype.itemsize, steps)
            return np.array(view, order="C")

    def _refuse_too_many(self, nbytes: int) -> None:
        """Refuse copies without end: a small file can declare a thousand views of its one storage."""
        self._copies_nbytes += nbytes
        most = max(MAX_EXPANDED_NBYTES, MAX_COPIES * self._storages_nbytes)
        if self._copies_nbytes > most:
            raise LimitError(
                "tensors that share memory are too large to be copied each",
                expected=f"at most {most:,} bytes",
                found=f"{self._copies_nbytes:,} bytes",
                hint="Load them as NumPy arrays, which can share memory, or one by one",
            )
