"""Some rows of a tensor that is to be written, without a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tensorkeep.arrays import TensorToWrite, tensor_to_write
from tensorkeep.buffers import Buffer
from tensorkeep.tensors import LazyTensor, StoredTensor, stored_pieces
from tensorkeep.transport import ByteRange


def rows_of(tensor: Any, host: TensorToWrite, start: int, stop: int) -> TensorToWrite:
    """Describe some rows of a tensor for writing."""
    if tensor is not None and not isinstance(tensor, LazyTensor):
        return tensor_to_write(tensor[start:stop], "")
    shape = (stop - start, *host.shape[1:])
    begin, end = (host.nbytes * row // host.shape[0] for row in (start, stop))
    if isinstance(host, StoredTensor):
        span = ByteRange(host.span.start + begin, host.span.start + end)
        pieces = partial(stored_pieces, host.source, span)
        return StoredTensor(host.dtype, shape, end - begin, host.extent, pieces, source=host.source, span=span)
    return TensorToWrite(host.dtype, shape, end - begin, host.extent, lambda: _cut(host.buffers(), begin, end))


def _cut(buffers: Iterator[Buffer], begin: int, end: int) -> Iterator[Buffer]:
    """Give the bytes from `begin` to `end` of all."""
    place = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        part = view[max(begin - place, 0) : max(end - place, 0)]
        if len(part):
            yield part
        place += len(view)
        if place >= end:
            return
