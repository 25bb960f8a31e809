"""Arrays through tensorstore. Nothing else of tensorkeep calls it, and nothing does unless the caller names it.

Its specifications are made here and name only the directory: what the files say is never a place to read from. It is
written in C++, where memory that cannot be had ends the process, so sizes are compared with the files first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.dtypes import DType
from tensorkeep.errors import FormatError, LimitError, importing
from tensorkeep.formats.zarr import ARRAY_KEYS, ArrayLayout, parse_zarr
from tensorkeep.kinds.base import OpenOptions
from tensorkeep.kinds.orbax._links import refuse_outside
from tensorkeep.kinds.orbax._reader import ArrayReader
from tensorkeep.limits import MAX_EXPANDED_NBYTES, MAX_INFLATION
from tensorkeep.tensors.indexing import Selection

_Array = npt.NDArray[Any]

_N_READ_AT_ONCE: Final = 256
_MAX_KEYS: Final = 1_000_000


class TensorstoreArrays:
    """The arrays in the directory of one item."""

    def __init__(self, directory: str, *, is_database: bool, is_zarr3: bool, nbytes: int) -> None:
        self.directory = directory
        self.nbytes = nbytes
        self._is_database = is_database
        self._is_zarr3 = is_zarr3
        self._lock = threading.Lock()
        self._opened: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return _reopened, (self.directory, self._is_database, self._is_zarr3, self.nbytes)

    @property
    def _suffix(self) -> str:
        return f"/{ARRAY_KEYS[3 if self._is_zarr3 else 2]}"

    @property
    def file_names(self) -> list[str]:
        """None: tensorstore does not say which files it reads."""
        return []

    def names(self) -> list[str]:
        """Return the names of all arrays, for old checkpoints without a list of them."""
        suffix = self._suffix.encode()
        with self._as_damage():
            keys = self._store("").list().result()
        if len(keys) > _MAX_KEYS:
            raise LimitError("there are too many keys", path=self.directory, expected=f"at most {_MAX_KEYS:,}")
        return sorted(key[: -len(suffix)].decode("utf-8", "replace") for key in keys if key.endswith(suffix))

    def layouts(self, names: Sequence[str]) -> list[ArrayLayout]:
        """Return what some arrays are, read many at a time."""
        if not self._is_database:
            refuse_outside(names, self.directory)
        found: list[ArrayLayout] = []
        store = self._store("")
        for begin in range(0, len(names), _N_READ_AT_ONCE):
            batch = names[begin : begin + _N_READ_AT_ONCE]
            with self._as_damage():
                reads = [store.read(name + self._suffix) for name in batch]
                values = [read.result() for read in reads]
            found += [self._layout(name, value) for name, value in zip(batch, values, strict=True)]
        return found

    def _layout(self, name: str, value: Any) -> ArrayLayout:
        if value.state == "missing":
            raise FormatError("the array is missing", path=self.directory, tensor=name, expected=name + self._suffix)
        try:
            return parse_zarr(value.value, is_zarr3=self._is_zarr3)
        except FormatError as error:
            raise error.with_fields(path=self.directory, tensor=name) from None

    def reader(self, name: str, layout: ArrayLayout, options: OpenOptions) -> ArrayReader:
        """Return the reader of an array."""
        return ArrayReader(self, name, layout, options.framework, options.device)

    def is_checked(self, name: str, layout: ArrayLayout) -> bool:  # noqa: ARG002
        """Return False: tensorstore does not say what has a checksum."""
        return False

    def read(self, name: str, layout: ArrayLayout, dtype: DType, selection: Selection) -> _Array:
        """Read a block of an array: only the chunks that it touches."""
        self._refuse_large(name, "a chunk", dtype.nbytes(prod(layout.chunk)))
        self._refuse_large(name, "the part that is read", dtype.nbytes(selection.n_elements))
        array = self._array(name, layout)
        index = tuple(map(_index_of, selection.axes))
        with self._as_damage(name):
            import tensorstore

            block = array.oindex[index][tensorstore.d[:].translate_to[0]] if index else array
            into: _Array = np.empty(selection.block_shape, array.dtype.numpy_dtype)
            if into.size:
                tensorstore.array(into).write(block).result()
        return into

    def _refuse_large(self, name: str, what: str, nbytes: int) -> None:
        limit = max(MAX_EXPANDED_NBYTES, MAX_INFLATION * self.nbytes)
        if nbytes > limit:
            raise LimitError(
                f"{what} is far larger than the files",
                path=self.directory,
                tensor=name,
                expected=f"at most {limit:,} bytes, from {self.nbytes:,} in the files",
                found=f"{nbytes:,} bytes",
            )

    def _array(self, name: str, layout: ArrayLayout) -> Any:
        with self._lock:
            array = self._opened.get(name)
        if array is None:
            with self._as_damage(name):
                import tensorstore

                driver = "zarr3" if self._is_zarr3 else "zarr"
                spec = {"driver": driver, "kvstore": self._spec(f"{name}/")}
                array = tensorstore.open(spec, open=True, read=True).result()
            if array.shape != layout.shape:
                raise FormatError(
                    "the array changed while it was open",
                    path=self.directory,
                    tensor=name,
                    expected=f"shape {list(layout.shape)}",
                    found=f"{list(array.shape)}",
                )
            with self._lock:
                self._opened[name] = array
        return array

    def _store(self, path: str) -> Any:
        with self._as_damage(), importing(tensorstore="tensorstore"):
            import tensorstore

            return tensorstore.KvStore.open(self._spec(path)).result()

    def _spec(self, path: str) -> dict[str, Any]:
        files = {"driver": "file", "path": f"{self.directory}/"}
        if self._is_database:
            return {"driver": "ocdbt", "base": files, "path": path}
        return files | {"path": f"{self.directory}/{path}"}

    @contextmanager
    def _as_damage(self, name: str | None = None) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            raise LimitError("not enough memory", path=self.directory, tensor=name, found=str(error)) from None
        except (FormatError, LimitError, ModuleNotFoundError):
            raise
        except (ValueError, KeyError, OSError, NotImplementedError, RuntimeError) as error:
            raise FormatError(
                "tensorstore cannot read the checkpoint", path=self.directory, tensor=name, found=str(error)
            ) from None

    def close(self) -> None:
        """Close all arrays."""
        with self._lock:
            self._opened.clear()


def _index_of(axis: range | npt.NDArray[np.intp]) -> slice | npt.NDArray[np.intp]:
    """Return the index for positions along one axis; tensorstore takes no end beyond the axis."""
    if not isinstance(axis, range):
        return axis
    return slice(axis.start, axis[-1] + 1, axis.step) if len(axis) else slice(0, 0)


def _reopened(directory: str, is_database: bool, is_zarr3: bool, nbytes: int) -> TensorstoreArrays:
    return TensorstoreArrays(directory, is_database=is_database, is_zarr3=is_zarr3, nbytes=nbytes)
