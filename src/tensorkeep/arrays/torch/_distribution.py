"""Bytes on a device, distributed to the tensors that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import torch

from tensorkeep.arrays._device_memory import Move, Target
from tensorkeep.arrays.torch._dtypes import torch_dtype

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element to a dtype whose copies keep all bits."""

_CONVERTED_TOGETHER: Final = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
"""Dtypes between which all versions and devices of torch convert several tensors at once."""

_Dtypes = tuple[torch.dtype, torch.dtype]
"""As what bytes are read, and as what they are written to a tensor."""


def distribute(row: torch.Tensor, moves: Sequence[Move], targets: Mapping[int, Target]) -> None:
    """Copy parts of a row of bytes to the tensors of moves, in the current stream."""
    for (read, written), run in _runs_of(moves, targets):
        values = row[run[0].start : run[-1].stop].view(read)
        into = [part for move in run for part in _elements(targets[move.target], move)]
        parts = values.split_with_sizes([part.numel() for part in into])
        _copy([part.view(written) for part in into], parts)


def _copy(into: list[torch.Tensor], parts: Iterable[torch.Tensor]) -> None:
    """Copy tensors of one dtype to others of one dtype."""
    shaped = [part if to.ndim == 1 else part.view(to.shape) for to, part in zip(into, parts, strict=True)]
    dtypes = {into[0].dtype, shaped[0].dtype}
    if len(dtypes) == 1 or dtypes <= _CONVERTED_TOGETHER:
        torch._foreach_copy_(into, shaped)
        return
    for to, part in zip(into, shaped, strict=True):
        to.copy_(part)


def _dtypes_of(target: Target) -> _Dtypes:
    """Return as what a tensor is filled: as integers if nothing is converted.

    Several tensors of floats are copied by way of F32, in which NaNs lose bits, and some dtypes have no such copy.
    """
    stored: Any = torch_dtype(target.stored)
    dtype = target.tensor.dtype
    if stored != dtype:
        return stored, dtype
    same = _INTEGERS.get(dtype.itemsize, dtype)  # C128 is copied as it is
    return same, same


def _runs_of(moves: Sequence[Move], targets: Mapping[int, Target]) -> Iterator[tuple[_Dtypes, list[Move]]]:
    """Group moves whose bytes are neighbors, and which are copied from one dtype to one dtype.

    Of tensors that it copies at once, torch may look at the dtype of the first only.
    """
    for dtypes, alike in groupby(moves, lambda move: _dtypes_of(targets[move.target])):
        run: list[Move] = []
        for move in alike:
            if run and move.start != run[-1].stop:
                yield dtypes, run
                run = []
            run.append(move)
        yield dtypes, run


def _elements(target: Target, move: Move) -> Iterator[torch.Tensor]:
    """Yield the elements to which a move goes, in one dimension; a strided tensor has several views."""
    tensor: torch.Tensor = target.tensor
    n_elements, first = (move.stop - move.start) // target.stored.itemsize, move.offset // target.stored.itemsize
    if not tensor.is_contiguous():
        yield from _run_of(tensor, first, n_elements)
        return
    flat = tensor if tensor.ndim == 1 else tensor.view(-1)
    yield flat if n_elements == flat.shape[0] else flat[first : first + n_elements]


def _run_of(tensor: torch.Tensor, first: int, n_elements: int) -> Iterator[torch.Tensor]:
    """Yield views that are a run of elements in C order: rows, and parts of those where it begins and ends."""
    if tensor.ndim == 1:
        yield tensor[first : first + n_elements]
        return
    row = tensor[0].numel()
    while n_elements:
        at, before = divmod(first, row)
        if before or n_elements < row:
            n_taken = min(row - before, n_elements)
            yield from _run_of(tensor[at], before, n_taken)
        else:
            n_taken = n_elements // row * row
            yield tensor[at : at + n_taken // row]
        first, n_elements = first + n_taken, n_elements - n_taken
