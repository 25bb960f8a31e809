"""Several tensors as one: each is a region of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tensorkeep.arrays import DenseArrays, TensorToWrite
from tensorkeep.arrays.elements import known_dtype
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import RefusedError
from tensorkeep.tensors import LazyTensor, PlacedPiece, Region, Selection, assemble
from tensorkeep.tensors.readers import Planned, Reader
from tensorkeep.transforms.arranging._part import dtype_of, part_of
from tensorkeep.transport import ByteRange, ByteSource


class LikeReader(msgspec.Struct, frozen=True, eq=False):
    """Reads a tensor of NumPy as one of another library.

    Attributes:
        made: The tensor of NumPy.
        like: A reader of that library, on its device.
    """

    made: LazyTensor
    like: Reader

    @property
    def cast_to(self) -> DType | None:
        """The dtype of its tensors."""
        return self.made.reader.cast_to

    @property
    def source(self) -> ByteSource | None:
        """The bytes, if they are consecutive."""
        return self.made.reader.source

    @property
    def path(self) -> str | None:
        """The file or checkpoint, for messages."""
        return self.made.reader.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.like.adapter

    def with_framework(self, framework: str, device: Any = "cpu") -> Reader:
        """Return a reader for another array library."""
        return self.made.reader.with_framework(framework, device)

    def span_of(self, entry: TensorEntry) -> ByteRange | None:
        """Return the range of `source`."""
        return self.made.reader.span_of(entry)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of the tensor."""
        return self._of(self.made.reader.read(name, entry, selection), name, entry)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part would read."""
        return self.made.reader.plan(entry, selection)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements."""
        return self._of(self.made.reader.read_run(name, entry, start, stop), name, entry)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read."""
        return self.made.reader.run_length(entry)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read the whole tensor."""
        read = self.made.reader.load(entries)
        return {name: self._of(tensor, name, entries[name]) for name, tensor in read.items()}

    def view(self, name: str, entry: TensorEntry) -> Any | None:
        """Return None: the mapping's owner is another reader."""

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.like.place(tensor)

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:
        """Describe the tensor for writing."""
        return self.made.reader.tensor_to_write(name, entry, digest)

    def _of(self, read: Any, name: str, entry: TensorEntry) -> Any:
        dtype = known_dtype(name, entry)
        return self.adapter.from_elements(read.view(dtype.bits_name), dtype)


def joined(
    name: str,
    shape: tuple[int, ...],
    placed: Iterable[tuple[Region, LazyTensor]],
    *,
    path: str,
) -> LazyTensor:
    """Return one tensor of parts of one dtype, whose shapes are those regions."""
    parts = list(placed)
    first = parts[0][1]
    pieces = [PlacedPiece.of(region, path, lazy.with_framework("numpy")) for region, lazy in parts]
    made = assemble(name, dtype_of(first).name, shape, pieces, path=path, framework="numpy")
    return LazyTensor(name, made.entry, LikeReader(made, first.reader), library=first.library)


def tiled(
    name: str, rows: Sequence[Sequence[LazyTensor]], dim: int = 0, *, is_stacked: bool = False, path: str
) -> LazyTensor:
    """Return tensors as one: concatenated along a dimension in each row, and the rows, if several, stacked."""
    first = rows[0][0]
    every = [lazy for row in rows for lazy in row]
    if not is_stacked and len(every) == 1:
        return first.renamed(name)
    if len(rows[0]) > 1 and not 0 <= dim < first.ndim:
        raise _refused(name, f"they have no dimension {dim}", every)
    if any({(one.dtype, _around(one, dim)) for one in row} != {(first.dtype, _around(first, dim))} for row in rows):
        raise _refused(name, "their shapes or dtypes do not match", every)
    if len({tuple(one.shape for one in row) for row in rows}) > 1:
        raise _refused(name, "their shapes differ", every)
    placed: list[tuple[Region, LazyTensor]] = []
    for number, row in enumerate(rows):
        start = 0
        for lazy in row:
            region = Region(
                tuple(start if axis == dim else 0 for axis in range(lazy.ndim)),
                tuple(extent + start if axis == dim else extent for axis, extent in enumerate(lazy.shape)),
            )
            start += lazy.shape[dim] if lazy.ndim else 0
            placed.append((_in_row(number, region), _with_row(lazy)) if is_stacked else (region, lazy))
    shape = tuple(start if axis == dim else extent for axis, extent in enumerate(first.shape))
    return joined(name, (len(rows), *shape) if is_stacked else shape, placed, path=path)


def _around(lazy: LazyTensor, dim: int) -> tuple[int, ...]:
    return tuple(extent for axis, extent in enumerate(lazy.shape) if axis != dim)


def _in_row(number: int, region: Region) -> Region:
    return Region((number, *region.starts), (number + 1, *region.stops))


def _with_row(lazy: LazyTensor) -> LazyTensor:
    """Return a tensor with a first dimension of extent 1."""
    return part_of(lazy, Region((0,) * lazy.ndim, lazy.shape), (None, *range(lazy.ndim)))


def _refused(name: str, why: str, parts: Sequence[LazyTensor]) -> RefusedError:
    different = {(lazy.dtype, lazy.shape): lazy for lazy in reversed(parts)}
    found = [f"`{lazy.name}` {lazy.dtype} {list(lazy.shape)}" for lazy in reversed(different.values())]
    return RefusedError(f"tensors cannot be joined to `{name}`: {why}", tensor=name, found=" and ".join(found[:3]))
