"""A reader that converts numbers to another floating-point dtype.

`DenseArrays.cast` defines the numbers. Tensors are converted by their own array library, on their device; bytes for a
file always by NumPy, so that equal input gives equal files whatever the framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tensorkeep.arrays import DenseArrays, DeviceMemory, StreamedTensor, TensorToWrite, tensor_to_write
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType, find_dtype
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.tensors.indexing import Selection
from tensorkeep.tensors.readers._base import Planned, Reader
from tensorkeep.tensors.readers._contiguous import TensorReader, neighbors
from tensorkeep.tensors.readers._kept_memory import keep_freed_memory
from tensorkeep.tensors.to_device import Staged

_TARGETS = ("F8_E5M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F16", "BF16", "F32", "F64")


def cast_target(spelling: Any) -> DType:
    """Return the dtype to convert tensors to, or refuse one that is not floating point or cannot be cast to."""
    dtype = find_dtype(spelling)
    if dtype.name not in _TARGETS:
        raise DtypeError(
            f"tensors cannot be cast to {dtype.name}",
            expected="one of " + ", ".join(_TARGETS),
            found=repr(spelling),
            hint="Numbers of block formats need scales, which a cast does not have" if dtype.is_float else None,
        )
    return dtype


class CastReader(msgspec.Struct, frozen=True):
    """Reads what another reader reads, and converts it.

    Attributes:
        stored: The other reader.
        cast_to: The dtype to convert to; see `cast_target`.
    """

    stored: Reader
    cast_to: DType

    @property
    def source(self) -> None:
        """None: converted bytes are in no file."""

    @property
    def path(self) -> str | None:
        """The file of the other reader, for messages."""
        return self.stored.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.stored.adapter

    def with_framework(self, framework: str, device: Any = "cpu") -> CastReader:
        """Return the same reader for another array library."""
        return msgspec.structs.replace(self, stored=self.stored.with_framework(framework, device))

    def span_of(self, entry: TensorEntry) -> None:
        """Return None: converted bytes are in no file."""

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read and convert a part of a tensor."""
        via = self._via(entry)
        return self._converted(via.read(name, entry, selection), via)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part of a tensor would read."""
        return self.stored.plan(entry, selection)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read and convert a run of elements."""
        via = self._via(entry)
        return self._converted(via.read_run(name, entry, start, stop), via)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read."""
        return self.stored.run_length(entry)

    def staged(self, entries: Mapping[str, TensorEntry]) -> tuple[DeviceMemory, Staged] | None:
        """Return the device that copies and converts by itself, and what to load; None to do it in another way."""
        found = self.stored.staged(entries) if isinstance(self.stored, TensorReader) else None
        dtypes: set[Any] = {entry.known_dtype for entry in entries.values()}
        if found is None or not all(found[0].converts(dtype, self.cast_to) for dtype in dtypes):
            return None
        return found[0], msgspec.structs.replace(found[1], cast_to=self.cast_to)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors, a few at a time, so that little more than the result is in memory."""
        loaded: dict[str, Any] = {}
        for group in neighbors(entries):
            strange = {name: entry for name, entry in group.items() if self._is_strange(entry)}
            plain = {name: entry for name, entry in group.items() if name not in strange}
            for part in filter(None, (strange, plain)):
                via = self._via(next(iter(part.values())))
                for name, tensor in via.load(part).items():
                    loaded[name] = self._converted(tensor, via)
        return {name: loaded[name] for name in entries}

    def view(self, name: str, entry: TensorEntry) -> None:
        """Return None: converted elements are in no file."""

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.stored.place(tensor)

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe a tensor for writing; its numbers are converted run by run."""
        self.stored.tensor_to_write(name, entry)  # refuses a tensor that must not be read as a whole
        nbytes = self.cast_to.nbytes(entry.n_elements)
        return StreamedTensor(self.cast_to, entry.shape, nbytes, lambda: self._buffers(name, entry))

    def _buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        keep_freed_memory()
        reader = self.with_framework("numpy")
        length = reader.run_length(entry)
        for start in range(0, entry.n_elements, length):
            stop = min(start + length, entry.n_elements)
            yield from tensor_to_write(reader.read_run(name, entry, start, stop), name).buffers()

    def _is_strange(self, entry: TensorEntry) -> bool:
        dtype = self.stored.cast_to or entry.known_dtype
        return dtype is not None and (dtype.is_packed or not self.adapter.has_dtype(dtype))

    def _via(self, entry: TensorEntry) -> Reader:
        """Return the reader to convert from: NumPy's for dtypes that the library lacks or cannot compute with."""
        return self.stored.with_framework("numpy") if self._is_strange(entry) else self.stored

    def _converted(self, tensor: Any, via: Reader) -> Any:
        converted = via.adapter.cast(tensor, self.cast_to)
        if via is self.stored:
            return converted
        return self.adapter.from_elements(converted.view(self.cast_to.bits_name), self.cast_to)
