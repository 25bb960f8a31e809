"""A reader of a tensor whose values are a function of other tensors', computed when they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from math import prod
from operator import index
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays, StreamedTensor, TensorToWrite, adapter_for, any_tensor_to_write
from tensorkeep.arrays.elements import aligned, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType, find_dtype
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, RefusedError
from tensorkeep.parallel import read_ahead
from tensorkeep.tensors.indexing import Selection, parse_index
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.readers import (
    RUN_LENGTH,
    Planned,
    Reader,
    UnstoredReader,
    joined_plan,
    keep_freed_memory,
    take_block,
)

Array = npt.NDArray[Any]

Scope: TypeAlias = Literal["tensor", "rows", "elements"]
"""What one value depends on: whole inputs, the same index of their first dimension, or the same element of each."""


_PARALLEL_RUN_LENGTH: Final = 4 * RUN_LENGTH
"""Elements to compute at once where threads do: handing a run over takes as long as averaging 100,000."""

_N_THREADS: Final = min(4, os.cpu_count() or 1)
"""Threads that compute runs."""

_AHEAD_NBYTES: Final = 2**24
"""Bytes of runs that wait to be written: threads compute them while the disk takes its time."""


class ComputedReader(UnstoredReader, frozen=True, eq=False):
    """Reads one tensor.

    Attributes:
        compute: Takes as many tensors as there are inputs, and returns one.
        inputs: At least one tensor.
        dtype: The dtype of what it returns.
        shape: The shape of what it returns for whole inputs.
        scope: What one value depends on.
        framework: The array library of the tensors that `compute` takes; the inputs' if None.
        target: Framework and device of the tensors that are read; the first input's if None.
        in_threads: Whether several threads compute runs of one tensor that is written. Then `compute` returns memory
            that it does not keep.
    """

    compute: Callable[..., Any]
    inputs: tuple[LazyTensor, ...]
    dtype: DType
    shape: tuple[int, ...]
    scope: Scope
    framework: str | None = None
    target: tuple[str, Any] | None = None
    in_threads: bool = False

    @property
    def path(self) -> str | None:
        """The file of its inputs, for messages; None if they come from several."""
        paths = {lazy.reader.path for lazy in self.inputs}
        return paths.pop() if len(paths) == 1 else None

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.inputs[0].reader.adapter if self.target is None else adapter_for(*self.target)

    def with_framework(self, framework: str, device: Any = "cpu") -> ComputedReader:
        """Return the same reader for another array library; the function still gets tensors of its own."""
        return msgspec.structs.replace(self, target=(framework, device))

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Compute a part of the tensor."""
        with within_numpys_limits(name, entry.shape):
            elements = np.array(selection.apply(self._block(name, selection)))  # the function may keep its result
        return self.adapter.from_elements(elements, self.dtype)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:  # noqa: ARG002 - a reader of one tensor
        """Return what computing a part of the tensor would read."""
        return joined_plan(lazy.reader.plan(lazy.entry, part) for lazy, part in self._needed(selection))

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Compute a run of elements."""
        if self.scope == "elements":
            runs = [self._reader(lazy).read_run(lazy.name, lazy.entry, start, stop) for lazy in self.inputs]
            elements = self._computed(name, runs, (stop - start,))
        else:
            row = prod(entry.shape[1:])
            rows = slice(start // row, -(-stop // row)) if entry.shape and stop > start else ...
            first = rows.start * row if isinstance(rows, slice) else 0
            block = self._block(name, parse_index(rows, entry.shape)).reshape(-1)
            elements = block[start - first : stop - first]
        if self.scope != "tensor" and not self.in_threads:  # a part of a whole tensor is a copy already
            elements = elements.copy()  # the function may keep its result, and fill it again for the next run
        return self.adapter.from_elements(elements, self.dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should compute: all if each depends on all, else whole rows."""
        row = 1 if self.scope == "elements" else prod(entry.shape[1:])
        length = _PARALLEL_RUN_LENGTH if self.in_threads else RUN_LENGTH
        return max(prod(entry.shape) if self.scope == "tensor" else length // max(row, 1) * row, row, 1)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Compute the whole tensor."""
        loaded = {}
        for name, entry in entries.items():
            inputs = [self._reader(lazy).load({lazy.name: lazy.entry})[lazy.name] for lazy in self.inputs]
            elements = self._computed(name, inputs, entry.shape)
            loaded[name] = self.adapter.from_elements(elements.copy(), self.dtype)  # the function may keep its result
        return loaded

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe the tensor for writing; it is computed run by run."""
        for lazy in self.inputs:
            with suppress(DtypeError):  # it is read, not written
                lazy.tensor_to_write()  # refuses a tensor that must not be read as a whole
        return StreamedTensor(self.dtype, entry.shape, entry.nbytes, lambda: self._buffers(name, entry))

    def _buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        keep_freed_memory()
        reader = self.with_framework("numpy")
        n_elements, length = prod(entry.shape), reader.run_length(entry)

        def read(start: int) -> Any:
            return reader.read_run(name, entry, start, min(start + length, n_elements))

        starts = range(0, n_elements, length)
        n_ahead = max(_AHEAD_NBYTES // (length * self.dtype.itemsize), _N_THREADS)
        for run in read_ahead(read, starts, _N_THREADS, n_ahead) if self.in_threads else map(read, starts):
            yield from any_tensor_to_write(run, name).buffers()

    def _reader(self, lazy: LazyTensor) -> Reader:
        return lazy.reader if self.framework is None else lazy.reader.with_framework(self.framework)

    def _needed(self, selection: Selection) -> Iterator[tuple[LazyTensor, Selection]]:
        """Give each input and what of it a block of the tensor is computed from."""
        for lazy in self.inputs if selection.n_elements else ():
            whole = parse_index(..., lazy.shape)
            axes = selection.axes if self.scope == "elements" else whole.axes
            if self.scope == "rows":
                axes = (*selection.axes[:1], *axes[1:])
            yield lazy, Selection(lazy.shape, axes, whole.local)

    def _block(self, name: str, selection: Selection) -> Array:
        """Return the block of a selection, of dtype `bits_name`."""
        if not selection.n_elements:
            return np.empty(selection.block_shape, self.dtype.bits_name)
        inputs = [self._reader(lazy).read(lazy.name, lazy.entry, part) for lazy, part in self._needed(selection)]
        if self.scope == "elements":
            return self._computed(name, inputs, selection.block_shape)
        if self.scope == "tensor":
            return take_block(self._computed(name, inputs, self.shape), selection)
        rows = range(selection.block_shape[0])
        shape = (len(rows), *self.shape[1:])
        computed = self._computed(name, inputs, shape)
        if selection.has_whole_rows:
            return computed
        return take_block(computed, Selection(shape, (rows, *selection.axes[1:]), selection.local))

    def _computed(self, name: str, inputs: list[Any], shape: tuple[int, ...]) -> Array:
        """Call the function, and return what it gives as elements."""
        given = self.compute(*inputs)
        described = any_tensor_to_write(np.asarray(given) if isinstance(given, np.generic) else given, name)
        if (described.dtype, described.shape) != (self.dtype, shape):
            raise RefusedError(
                f"the function for tensor `{name}` gave another tensor than was declared",
                tensor=name,
                expected=f"{self.dtype.name} {list(shape)}",
                found=f"{described.dtype.name} {list(described.shape)}",
                hint=f"Declare dtype= and shape=; with scope={self.scope!r} the function also gets parts of tensors",
            )
        return _elements(described)


def _elements(tensor: TensorToWrite) -> Array:
    """Return the elements of a tensor: over its own memory if that is writable and in one piece."""
    buffers = list(tensor.buffers())
    if len(buffers) == 1 and not memoryview(buffers[0]).readonly:
        stored = aligned(np.frombuffer(buffers[0], np.uint8))
    else:
        stored = np.frombuffer(bytearray().join(buffers), np.uint8)
    return stored.view(tensor.dtype.bits_name).reshape(tensor.shape)


def computed_tensor(
    name: str,
    compute: Callable[..., Any],
    inputs: tuple[LazyTensor, ...],
    *,
    scope: Scope,
    dtype: Any = None,
    shape: tuple[int, ...] | None = None,
    framework: str | None = None,
    in_threads: bool = False,
) -> LazyTensor:
    """Make a tensor that is computed when it is read; dtype, shape and framework are the first input's if None."""
    first = inputs[0]
    target = find_dtype(first.dtype if dtype is None else dtype)
    if target.is_packed:
        raise DtypeError(
            f"tensor `{name}` cannot be computed",
            tensor=name,
            expected="a dtype whose elements are whole bytes",
            found=target.name,
            hint='Cast it first, or declare another one: dtype="bf16"' if dtype is None else None,
        )
    declared = first.shape if shape is None else checked_shape(shape)
    _check_shapes(name, inputs, declared, scope)
    entry = TensorEntry(target.name, declared, (0, target.nbytes(prod(declared))))
    reader = ComputedReader(compute, inputs, target, declared, scope, framework, in_threads=in_threads)
    return LazyTensor(name, entry, reader, library=first.library, marks=first.marks)


def checked_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """Return a shape that a caller gave, or refuse it."""
    extents = tuple(map(index, shape))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"a shape cannot have negative extents: {list(extents)}")
    return extents


def _check_shapes(name: str, inputs: tuple[LazyTensor, ...], declared: tuple[int, ...], scope: Scope) -> None:
    if scope not in get_args(Scope):
        raise ValueError(f"scope must be one of {', '.join(map(repr, get_args(Scope)))}, not {scope!r}")
    shapes = [declared, *(lazy.shape for lazy in inputs)]
    if scope == "elements" and len(set(shapes)) > 1:
        needed = "inputs and a result of one shape"
    elif scope == "rows" and (not all(shapes) or len({shape[0] for shape in shapes}) > 1):
        needed = "inputs and a result with the same number of rows"
    else:
        return
    raise RefusedError(
        f"tensor `{name}` cannot be computed by {scope}",
        tensor=name,
        expected=needed,
        found=", ".join(str(list(shape)) for shape in shapes[1:]) + f" and a result of {list(declared)}",
        hint='scope="tensor" gives the function whole tensors of any shapes',
    )
