"""A reader that converts numbers to another floating-point dtype on their way.

What a cast gives is said by `ArrayAdapter.cast`. Tensors are converted by the array library that they come out in, on
their device; bytes for a file always by NumPy, so that equal input gives equal files whatever library is in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from tensorkeep.arrays import ArrayAdapter, host_tensor
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType, find_dtype
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors._reader import TensorReader, neighbours
from tensorkeep.tensors._selection import Selection

__all__ = ["CastReader", "Reader", "cast_target"]

_TARGETS = ("F8_E5M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F16", "BF16", "F32", "F64")
_PIECE_LENGTH = PACK_NBYTES // 4
"""Elements that are converted at once for writing; whole groups of packed ones."""


def cast_target(spelling: Any) -> DType:
    """Return the dtype that tensors are to be converted to.

    Args:
        spelling: Anything that `find_dtype` takes.

    Returns:
        The row of the dtype table.

    Raises:
        DtypeError: If there is no such dtype, or it cannot hold plain numbers with a sign, an exponent and NaN.
    """
    dtype = find_dtype(spelling)
    if dtype.name not in _TARGETS:
        raise DtypeError(
            f"tensors cannot be cast to {dtype.name}",
            expected="one of " + ", ".join(_TARGETS),
            found=repr(spelling),
            hint="The blocks of a quantised tensor need scales" if dtype.is_float else None,
        )
    return dtype


class CastReader(msgspec.Struct, frozen=True):
    """Reads what another reader reads, converted; it has that reader's framework, device and threads.

    Equal ones are interchangeable: tensors of equal readers are loaded together.

    Attributes:
        stored: The reader of what is converted.
        cast_to: A floating-point dtype; see `cast_target`.
    """

    stored: Reader
    cast_to: DType

    @property
    def adapter(self) -> ArrayAdapter:
        """The array library."""
        return self.stored.adapter

    def with_framework(self, framework: str) -> CastReader:
        """Return a reader of the same that gives the CPU tensors of another array library.

        Args:
            framework: One of `tensorkeep.arrays.FRAMEWORKS`.
        """
        return CastReader(self.stored.with_framework(framework), self.cast_to)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor, and no more of the file than that; see `TensorReader.read`."""
        via = self._via(entry)
        return self._converted(via.read(name, entry, selection), via)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements; see `TensorReader.read_run`."""
        via = self._via(entry)
        return self._converted(via.read_run(name, entry, start, stop), via)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors, a few at a time, so that little more than the result is in memory."""
        loaded: dict[str, Any] = {}
        for group in neighbours(entries):
            packed = {name: entry for name, entry in group.items() if self._is_packed(entry)}
            plain = {name: entry for name, entry in group.items() if name not in packed}
            for part in filter(None, (packed, plain)):
                via = self._via(next(iter(part.values())))
                for name, tensor in via.load(part).items():
                    loaded[name] = self._converted(tensor, via)
        return {name: loaded[name] for name in entries}

    def view(self, name: str, entry: TensorEntry) -> Any | None:  # noqa: ARG002 - that of TensorReader
        """Return None: nothing that is converted lies in the file."""
        return None

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device; see `TensorReader.place`."""
        return self.stored.place(tensor)

    def buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        """Give the file's bytes of a converted tensor, in pieces of about a MiB.

        Args:
            name: The tensor's name, for messages.
            entry: The tensor.

        Yields:
            The bytes in order.
        """
        reader = self.with_framework("numpy")
        for start in range(0, entry.n_elements, _PIECE_LENGTH):
            stop = min(start + _PIECE_LENGTH, entry.n_elements)
            yield from host_tensor(reader.read_run(name, entry, start, stop), name).buffers()

    def _is_packed(self, entry: TensorEntry) -> bool:
        dtype = self.stored.cast_to or entry.known_dtype
        return dtype is not None and dtype.is_packed

    def _via(self, entry: TensorEntry) -> Reader:
        """Return the reader that gives what is converted: only NumPy computes with packed dtypes."""
        return self.stored.with_framework("numpy") if self._is_packed(entry) else self.stored

    def _converted(self, tensor: Any, via: Reader) -> Any:
        converted = via.adapter.cast(tensor, self.cast_to)
        if via is self.stored:
            return converted
        return self.adapter.from_elements(converted.view(self.cast_to.bits_name), self.cast_to)


Reader: TypeAlias = TensorReader | CastReader
"""What a lazy tensor reads with."""
