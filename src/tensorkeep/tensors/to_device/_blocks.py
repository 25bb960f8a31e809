"""Parts of tensors on a device, such as some of their columns: gathered in host buffers while they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.arrays import DeviceMemory, Move, Target, pieces
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors.to_device._devices import fill_each_device
from tensorkeep.tensors.to_device._options import StagingOptions
from tensorkeep.tensors.to_device._pipeline import Filling, Gathered, Report, buffer_nbytes_of
from tensorkeep.tensors.to_device._room import require_room

_GATHERED_FROM_NBYTES: Final = 2**20
"""Bytes from which a part is gathered in host buffers: making these takes longer than to read and move fewer."""


class Block(msgspec.Struct, frozen=True, eq=False):
    """A part of a tensor.

    Attributes:
        path: The file, for error messages.
        dtype: Of its elements.
        shape: Elements along each dimension.
        read: Takes an index of the part and as much memory as that needs, and fills it in C order.
        n_rows: Rows, along the first dimension, that are best read together, such as those of chunks.
    """

    path: str
    dtype: DType
    shape: tuple[int, ...]
    read: Callable[[tuple[int | slice, ...], memoryview], None]
    n_rows: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.dtype.nbytes(prod(self.shape))

    @property
    def is_worth_gathering(self) -> bool:
        """Whether it is large enough."""
        return self.nbytes >= _GATHERED_FROM_NBYTES


BlockLoad: TypeAlias = tuple[DeviceMemory, Sequence[tuple[Target, Block]]]
"""A device, and the tensors there that are filled."""


def load_blocks(device: DeviceMemory, blocks: Sequence[Block], report: Report | None = None) -> list[Any]:
    """Load parts as new tensors; a LimitError, before anything is read, if they do not fit."""
    require_room(device, sum(block.nbytes for block in blocks), blocks[0].path)
    entries = [TensorEntry(block.dtype.name, block.shape, (0, block.nbytes)) for block in blocks]
    targets = device.allocate(entries)
    fill_blocks([(device, list(zip(targets, blocks, strict=True)))], report)
    return [target.tensor for target in targets]


def fill_blocks(loads: Sequence[BlockLoad], report: Report | None = None) -> None:
    """Fill tensors on devices with parts of others."""
    fill_each_device(loads, _begin, report)


def _begin(load: BlockLoad, options: StagingOptions) -> Filling:
    device, filled = load
    buffer_nbytes = buffer_nbytes_of(options)
    tasks = [
        [piece] for number, (_, block) in enumerate(filled) for piece in _pieces_of(block, number, buffer_nbytes)
    ]
    return Filling(device, {number: target for number, (target, _) in enumerate(filled)}, tasks, options)


def _pieces_of(block: Block, target: int, buffer_nbytes: int) -> Iterator[Gathered]:
    """Cut a part into pieces that fit in a buffer, each of them contiguous in the result."""
    done = 0
    itemsize = block.dtype.itemsize
    for index in _cuts_of(block, buffer_nbytes) if block.nbytes else ():
        nbytes = itemsize * prod(_extents(block.shape, index))
        yield Gathered(_reading(block, index), nbytes, (Move(target, done, 0, nbytes),))
        done += nbytes


def _cuts_of(block: Block, buffer_nbytes: int) -> Iterator[tuple[int | slice, ...]]:
    row_nbytes = block.dtype.nbytes(prod(block.shape[1:]))
    n_rows = buffer_nbytes // row_nbytes // block.n_rows * block.n_rows
    if not n_rows or block.n_rows == 1:
        yield from pieces(block.shape, block.dtype.itemsize, buffer_nbytes)
        return
    for first in range(0, block.shape[0], n_rows):
        yield (slice(first, min(first + n_rows, block.shape[0])),)


def _reading(block: Block, index: tuple[int | slice, ...]) -> Callable[[memoryview], None]:
    return lambda into: block.read(index, into)


def _extents(shape: tuple[int, ...], index: tuple[int | slice, ...]) -> list[int]:
    taken = [item.stop - item.start for item in index if isinstance(item, slice)]
    return [*taken, *shape[len(index) :]]
