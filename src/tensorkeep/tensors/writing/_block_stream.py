"""Digests of the blocks of a file's data, computed by another thread while the data are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Self

from tensorkeep.buffers import Buffer
from tensorkeep.digests.blocks import BlockHasher, BlockTree, binding_of, tree_of
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.parallel import Workers
from tensorkeep.transport import ByteRange, ByteSource

if TYPE_CHECKING:
    from concurrent.futures import Future

_MAX_WAITING: Final = 4
"""Pieces that may wait to be hashed; more would keep memory if they are copies."""

_SMALL_NBYTES: Final = 2**16
"""Bytes below which buffers are collected: handing one to a thread costs as much as hashing some kilobytes."""

_COLLECTED_NBYTES: Final = 2**20


class BlockStream:
    """Takes the data of one file, in order; a context manager, which ends its thread."""

    def __init__(self) -> None:
        self._hasher = BlockHasher()
        self._thread = Workers(1, "tensorkeep-blocks")
        self._waiting: deque[Future[None]] = deque()
        self._small: list[Buffer] = []
        self._small_nbytes = 0
        self._nbytes = 0
        self.tree: BlockTree | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel=True)

    def passing(self, buffers: Iterable[Buffer]) -> Iterator[Buffer]:
        """Pass bytes on, and hash them."""
        for buffer in buffers:
            self._take(memoryview(buffer).cast("B"))
            yield buffer

    def take_from(self, source: ByteSource, span: ByteRange) -> None:
        """Take bytes of a source, which the thread reads."""
        self._hash_small()
        self._nbytes += len(span)
        self._submit(source.pieces(span))

    def finish(self, tensor_digests: Iterable[bytes]) -> None:
        """Wait for all digests, and make the tree over them."""
        self._hash_small()
        for future in self._waiting:
            future.result()
        self.tree = tree_of(self._hasher.digests(), self._nbytes, binding_of(tensor_digests))

    def _take(self, view: memoryview) -> None:
        self._nbytes += len(view)
        if len(view) < _SMALL_NBYTES:
            self._small.append(view)
            self._small_nbytes += len(view)
            if self._small_nbytes >= _COLLECTED_NBYTES:
                self._hash_small()
            return
        self._hash_small()
        for begin in range(0, len(view), WRITE_NBYTES):
            self._submit([view[begin : begin + WRITE_NBYTES]])

    def _hash_small(self) -> None:
        if self._small:
            self._submit(self._small)
            self._small, self._small_nbytes = [], 0

    def _submit(self, buffers: Iterable[Buffer]) -> None:
        self._waiting.append(self._thread.submit(self._hash, buffers))
        if len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft().result()

    def _hash(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self._hasher.update(buffer)
