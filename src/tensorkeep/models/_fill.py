"""Bytes of a checkpoint into tensors that exist, in bounded memory.

Bytes that need no change are read straight into the tensor's memory, in large reads side by side. All others pass in
pieces through a small buffer, and are converted and copied from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import torch

from tensorkeep.arrays import adapter_for, pieces
from tensorkeep.dtypes import BY_NAME, BY_TORCH, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import READ_NBYTES
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import ByteRange, ByteSource

_BATCH_NBYTES: Final = 16 * READ_NBYTES
"""Bytes that are read straight into tensors between two reports."""

_STAGED_NBYTES: Final = READ_NBYTES
"""Bytes that pass through memory of their own at once."""

_PIECE_NBYTES: Final = 2**22
"""Bytes of one piece of them, before or after it is converted."""

_Item = TypeVar("_Item")
_Report = Callable[[int], None]


class Job(msgspec.Struct, frozen=True, eq=False):
    """A tensor to fill.

    Attributes:
        lazy: What to fill it with.
        into: A tensor of the same number of elements; packed ones (F4) count as in the checkpoint.
        versioned: The tensors over this memory that must know that it changed.
    """

    lazy: LazyTensor
    into: torch.Tensor
    versioned: tuple[torch.Tensor, ...] = ()


class _Stored(msgspec.Struct, frozen=True, eq=False):
    """A tensor to fill with bytes that stand in a source.

    Attributes:
        dtype: That of the bytes.
        shape: In elements of that dtype.
        source: Where they are.
        span: Half-open range of the source.
        into: As in the job.
    """

    dtype: DType
    shape: tuple[int, ...]
    source: ByteSource
    span: ByteRange
    into: torch.Tensor

    @property
    def is_direct(self) -> bool:
        """Whether the file's bytes are those of the tensor."""
        into = self.into
        return (
            dtype_row(into.dtype) == self.dtype
            and into.device.type == "cpu"
            and into.is_contiguous()
            and not (into.is_conj() or into.is_neg())
            and sys.byteorder == "little"
        )


class _Piece(msgspec.Struct, frozen=True, eq=False):
    """A part of a tensor on its way through memory.

    Attributes:
        span: The whole bytes of the source that hold it.
        dtype: That of the bytes.
        first: Elements to skip in these bytes, where several share one.
        into: What it goes into, a view of the tensor.
    """

    span: ByteRange
    dtype: DType
    first: int
    into: torch.Tensor


def dtype_row(dtype: torch.dtype) -> DType | None:
    """Return the row of the dtype table, None for a dtype that the format does not have."""
    return BY_TORCH.get(str(dtype).removeprefix("torch."))


def fill(jobs: Iterable[Job], report: _Report) -> None:
    """Fill tensors."""
    jobs = list(jobs)
    for tensor in (tensor for job in jobs for tensor in job.versioned):
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    direct: list[_Stored] = []
    staged: list[_Stored] = []
    computed: list[Job] = []
    for job in jobs:
        stored = _stored(job)
        if stored is None:
            computed.append(job)
        else:
            (direct if stored.is_direct else staged).append(stored)
    for source, group in _by_source(direct):
        for batch in _batched(_memory_of(group), lambda part: len(part[1]), _BATCH_NBYTES):
            source.read_into(batch)
            report(sum(len(memory) for _, memory in batch))
    staging = np.empty(_STAGED_NBYTES if staged else 0, np.uint8)
    for source, group in _by_source(staged):
        for together in _batched(_pieces_of(group), lambda piece: len(piece.span), _STAGED_NBYTES):
            _pass_through(source, together, staging.data)
            report(sum(len(piece.span) for piece in together))
    for job in computed:
        _compute(job, report)


def _stored(job: Job) -> _Stored | None:
    lazy, source, span = job.lazy, job.lazy.source, job.lazy.span
    if source is None or span is None:
        return None
    return _Stored(BY_NAME[lazy.dtype], lazy.shape, source, span, job.into.detach())


def _by_source(tensors: list[_Stored]) -> Iterator[tuple[ByteSource, list[_Stored]]]:
    """Group by source, in the order of the bytes."""
    groups: dict[int, list[_Stored]] = {}
    for stored in tensors:
        groups.setdefault(id(stored.source), []).append(stored)
    for group in groups.values():
        yield group[0].source, sorted(group, key=lambda stored: stored.span.start)


def _batched(items: Iterable[_Item], size: Callable[[_Item], int], max_size: int) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    total = 0
    for item in items:
        if batch and total + size(item) > max_size:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _memory_of(group: Iterable[_Stored]) -> Iterator[tuple[int, memoryview]]:
    """Give the place in the source, and the memory, of each tensor; large ones in several parts."""
    for stored in group:
        memory = stored.into.reshape(-1).view(torch.uint8).numpy().data
        for begin in range(0, len(memory), _BATCH_NBYTES):
            yield stored.span.start + begin, memory[begin : begin + _BATCH_NBYTES]


def _pieces_of(group: Iterable[_Stored]) -> Iterator[_Piece]:
    for stored in group:
        dtype, shape, into = stored.dtype, stored.shape, stored.into
        if dtype.is_packed and dtype_row(into.dtype) == dtype:  # both have two elements in a byte
            dtype, shape, into = BY_NAME["U8"], tuple(into.shape), into.view(torch.uint8)
        start, done = stored.span.start, 0
        for index in pieces(shape, max(dtype.itemsize, into.element_size(), 4), _PIECE_NBYTES):
            part = into[index]
            first = done % dtype.n_per_group
            done += part.numel()
            begin = dtype.nbytes(done - part.numel() - first)
            end = -(-done // dtype.n_per_group) * dtype.n_per_group
            yield _Piece(ByteRange(start + begin, start + dtype.nbytes(end)), dtype, first, part)


def _pass_through(source: ByteSource, pieces_together: list[_Piece], staging: memoryview) -> None:
    """Read pieces into a buffer that is used again and again, and copy them from there."""
    parts: list[tuple[int, memoryview]] = []
    begin = 0
    for piece in pieces_together:
        parts.append((piece.span.start, staging[begin : begin + len(piece.span)]))
        begin += len(piece.span)
    source.read_into(parts)
    for piece, (_, data) in zip(pieces_together, parts, strict=True):
        _copy(piece.into, _decoded(data, piece))


def _decoded(data: memoryview, piece: _Piece) -> torch.Tensor:
    """Make a tensor of a piece's bytes; torch computes with no dtype of less than eight bits, so these become F32."""
    n_elements = piece.first + piece.into.numel()
    n_elements += -n_elements % piece.dtype.n_per_group
    entry = TensorEntry(piece.dtype.name, (n_elements,), (0, len(data)))
    if not piece.dtype.is_packed:
        tensor: torch.Tensor = adapter_for("torch").views(data, {"": entry}, 0)[""]
        return tensor
    elements = adapter_for("numpy").views(data, {"": entry}, 0)[""].astype(np.float32)
    return torch.from_numpy(elements[piece.first : piece.first + piece.into.numel()])


def _compute(job: Job, report: _Report) -> None:
    """Fill a tensor with one whose bytes stand nowhere as they are, such as a cast one."""
    lazy, into = job.lazy, job.into.detach()
    itemsize = max(BY_NAME[lazy.dtype].itemsize, into.element_size())
    for index in pieces(lazy.shape, itemsize, _PIECE_NBYTES):
        part = lazy[index]
        if not isinstance(part, torch.Tensor):
            dtype = BY_NAME[lazy.dtype]
            part = adapter_for("torch").from_elements(np.ascontiguousarray(part).view(dtype.bits_name), dtype)
        _copy(into[index], part)
        report(BY_NAME[lazy.dtype].nbytes(prod(part.shape)))


def _copy(into: torch.Tensor, values: torch.Tensor) -> None:
    with _writing_to(into):
        into.copy_(values.reshape(into.shape))


def _writing_to(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    return torch.inference_mode() if tensor.is_inference() else torch.no_grad()
