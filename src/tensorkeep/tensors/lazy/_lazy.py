"""A tensor that knows its shape now and reads its data when it is indexed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, SelectionError
from tensorkeep.tensors.indexing import parse_index, shard_range
from tensorkeep.tensors.readers import CastReader, Reader, ReadPlan, cast_target, plan_reads
from tensorkeep.transport import ByteRange, ByteSource, for_all

_NO_MARKS: Final[Mapping[str, Any]] = {}

_N_PARTS_AT_ONCE: Final = 16
"""Parts that are read side by side; each of a server takes several requests at a time."""


class LazyTensor:
    """One tensor of a file: `lazy.shape` costs nothing, `lazy[10:20, ::2]` reads those elements.

    Indexing means what it means for a NumPy array of the same shape, in elements (for F4 too, where two share a
    byte), and gives a tensor that owns its memory.

    Args:
        name: What to call it.
        entry: What its file says of it.
        reader: Reads that file.
        digest: BLAKE3 of its bytes, where the file promises one.
        library: The array library that it was saved from, where that is known.
        marks: What that library keeps beside elements, as the tree of a state says it.

    Attributes:
        name: Its name in the file, or in the view that it was taken from.
    """

    __slots__ = ("_digest", "_entry", "_reader", "library", "marks", "name")

    def __init__(
        self,
        name: str,
        entry: TensorEntry,
        reader: Reader,
        digest: bytes | None = None,
        *,
        library: str | None = None,
        marks: Mapping[str, Any] = _NO_MARKS,
    ) -> None:
        self.library = library
        self.marks = marks
        self.name = name
        self._entry = entry
        self._reader = reader
        self._digest = digest

    @property
    def entry(self) -> TensorEntry:
        """What its file says of it, before anything is cast."""
        return self._entry

    @property
    def reader(self) -> Reader:
        """What it reads with; tensors of one file have equal ones, which can be keys of a dict."""
        return self._reader

    @property
    def dtype(self) -> str:
        """Name of the element type in the format, such as `"BF16"`; of a cast tensor that which it is cast to."""
        cast_to = self._reader.cast_to
        return self._entry.dtype if cast_to is None else cast_to.name

    @property
    def is_floating_point(self) -> bool:
        """Whether the elements are real numbers with an exponent; F8, F6 and F4 are, complex numbers are not."""
        dtype = self._reader.cast_to or self._entry.known_dtype
        return dtype is not None and dtype.is_float

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._entry.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._entry.shape)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return prod(self._entry.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file; of a tensor that is cast or gathered those that it would take."""
        cast_to = self._reader.cast_to
        return self._entry.nbytes if cast_to is None else cast_to.nbytes(self.n_elements)

    @property
    def data_offsets(self) -> tuple[int, int]:
        """Half-open range in bytes, from the start of the file's data; of a cast tensor that of what is cast.

        A tensor that is gathered from here and there fills none: its range begins at 0.
        """
        return self._entry.data_offsets

    @property
    def source(self) -> ByteSource | None:
        """Where its bytes are; None for a tensor that is cast or gathered, whose bytes are nowhere yet."""
        return self._reader.source

    @property
    def span(self) -> ByteRange | None:
        """Half-open range of `source` that its bytes fill; None where that is None."""
        return self._reader.span_of(self._entry)

    @property
    def digest(self) -> bytes | None:
        """BLAKE3 of its bytes, as the file promises it; None where it promises none, or `span` is None."""
        return None if self.span is None else self._digest

    def renamed(self, name: str) -> LazyTensor:
        """Return the same tensor under another name.

        Args:
            name: What to call it.
        """
        return self._as(name, self.library, self.marks)

    def marked(self, library: str | None, marks: Mapping[str, Any]) -> LazyTensor:
        """Return the same tensor with what an array library keeps beside its elements.

        Args:
            library: The array library that it was saved from; None if that is not known.
            marks: What it keeps, as the tree of a state says it.
        """
        return self._as(self.name, library, marks)

    def _as(self, name: str, library: str | None, marks: Mapping[str, Any]) -> LazyTensor:
        return LazyTensor(name, self._entry, self._reader, self._digest, library=library, marks=marks)

    def cast(self, dtype: Any) -> LazyTensor:
        """Return this tensor with its numbers converted when they are read, rounded to nearest, ties to even.

        The numbers are those of torch's `.to(dtype)` and NumPy's `.astype(dtype)`. Where these differ, both array
        libraries give the same here: F64 becomes F32 on the way to anything narrower, and what is too large for
        F8_E4M3, infinities too, becomes its largest number (±448). Elsewhere it becomes infinite, or NaN in
        the FNUZ dtypes. Scales of quantised tensors are not applied.

        Args:
            dtype: F64, F32, F16, BF16, or an F8 that has a sign; in any usual spelling, such as `"bf16"`,
                `"bfloat16"`, or as a dtype of NumPy or torch.

        Returns:
            A lazy tensor of the same name and shape; this one if it has the dtype.

        Raises:
            DtypeError: If there is no such dtype, or either of the two is no such floating-point dtype.
        """
        target = cast_target(dtype)
        if target.name == self.dtype:
            return self
        if not self.is_floating_point:
            raise DtypeError(
                f"tensor `{self.name}` cannot be cast to {target.name}",
                tensor=self.name,
                expected="a floating-point tensor",
                found=self.dtype,
            )
        reader = CastReader(self._reader, target)
        return LazyTensor(self.name, self._entry, reader, library=self.library, marks=self.marks)

    def __getitem__(self, index: Any) -> Any:
        """Read a part."""
        return self._reader.read(self.name, self._entry, parse_index(index, self._entry.shape))

    def shard(self, dim: int, rank: int, world: int) -> Any:
        """Read what one of several ranks has of the tensor: what `torch.chunk` and DTensor's `Shard` give it.

        Args:
            dim: The dimension that is cut; negative ones count from the last.
            rank: Which rank, from 0.
            world: How many ranks.

        Returns:
            A tensor of the file's framework, on its device; without elements for a rank that has none.

        Raises:
            SelectionError: If there is no such dimension or rank.
            DtypeError: If the dtype is unknown here or to the framework.
            TransportError: If the bytes cannot be read.
        """
        if not -self.ndim <= dim < self.ndim:
            raise SelectionError(
                f"tensor `{self.name}` has no dimension {dim}", tensor=self.name, found=f"shape {list(self.shape)}"
            )
        axis = dim % self.ndim
        part = shard_range(self.shape[axis], rank, world)
        return self[(slice(None),) * axis + (slice(part.start, part.stop),)]

    def load(self) -> Any:
        """Read the whole tensor, without a copy where the file can be mapped.

        Returns:
            A tensor of the file's framework, on its device; it is writable and shares memory with no other.

        Raises:
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If an expanded view would take far more than it has in its file.
            TransportError: If the bytes cannot be read.
        """
        return self._reader.load({self.name: self._entry})[self.name]

    def view(self) -> Any | None:
        """Give the whole tensor on the CPU over the mapping that all tensors of this file share, without a copy.

        Cheaper than `load` for very many tensors; but views of the same tensor see each other's writes, and so does
        indexing.

        Returns:
            A tensor of the file's framework; None where the file is not mapped, or elements share bytes (F4, F6).

        Raises:
            DtypeError: If the dtype is unknown here or to the framework.
            TransportError: If the file is closed.
        """
        return self._reader.view(self.name, self._entry)

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the file's device.

        Args:
            tensor: A part of a `view`.

        Returns:
            The tensor where it is wanted.
        """
        return self._reader.place(tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        tensors = self._reader.with_framework("numpy").load({self.name: self._entry})
        return np.asarray(tensors[self.name], dtype=dtype)

    def __len__(self) -> int:
        """Return the extent of the first dimension."""
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        stored = "" if self.dtype == self._entry.dtype else f", cast from {self._entry.dtype}"
        return f"LazyTensor({self.name!r}, {self.dtype}, {list(self.shape)}, {self.nbytes:,} bytes{stored})"

    def tensor_to_write(self) -> TensorToWrite:
        """Describe the tensor for writing.

        Returns:
            A `StoredTensor`, whose bytes are those of the file, so that unknown dtypes can be copied too; for a
            tensor that is cast or gathered one that is made piece by piece.

        Raises:
            DtypeError: If the format has no such dtype, though this version knows it (C32, C128).
            LimitError: If an expanded view would take far more than it has in its file.
        """
        return self._reader.tensor_to_write(self.name, self._entry, self._digest)


def plan_together(whole: Iterable[LazyTensor], parts: Iterable[tuple[LazyTensor, Any]]) -> ReadPlan:
    """Plan to read tensors whole, and parts of some."""
    return plan_reads(
        ((lazy._reader, lazy._entry) for lazy in whole), ((lazy._reader, lazy._entry, index) for lazy, index in parts)
    )


def load_parts_together(parts: Mapping[str, tuple[LazyTensor, Any]]) -> dict[str, Any]:
    """Read parts of tensors side by side."""
    loaded: dict[str, Any] = dict.fromkeys(parts)

    def read(name: str) -> None:
        lazy, index = parts[name]
        loaded[name] = lazy[index]

    for_all(parts, read, n_threads=_N_PARTS_AT_ONCE)
    return loaded


def load_together(tensors: Mapping[str, LazyTensor]) -> dict[str, Any]:
    """Read whole tensors, those of one file in one go."""
    groups: dict[Reader, dict[str, TensorEntry]] = {}
    for name, lazy in tensors.items():
        groups.setdefault(lazy._reader, {})[name] = lazy._entry
    loaded: dict[str, Any] = {}
    for reader, entries in groups.items():
        loaded |= reader.load(dict(sorted(entries.items(), key=lambda item: item[1].data_offsets)))
    return {name: loaded[name] for name in tensors}
