"""Digests of tensors that are on their way to a file, made by another thread while they are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Self

from tensorkeep.buffers import Buffer
from tensorkeep.digests import digest_of, new_hasher
from tensorkeep.limits import HASHED_APART_NBYTES, WRITE_NBYTES

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from blake3 import blake3


_MAX_WAITING: Final = 4
"""Pieces that wait for their turn; more would hold back memory where they are copies."""


class Digesting:
    """Makes the digest of each tensor, in their order; a context manager, whose end ends its thread."""

    def __init__(self) -> None:
        self._made: list[bytes | Future[bytes]] = []
        self._waiting: deque[Future[blake3]] = deque()
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def carry(self, digest: bytes) -> None:
        """Take the digest of the next tensor as it is known."""
        self._made.append(digest)

    def passing(self, nbytes: int, buffers: Iterable[Buffer]) -> Iterator[Buffer]:
        """Let the next tensor pass."""
        if nbytes < HASHED_APART_NBYTES:
            whole = list(buffers)
            yield from whole
            self._made.append(digest_of(whole[0] if len(whole) == 1 else b"".join(whole)))
            return
        thread = self._started()
        hasher = new_hasher()
        for piece in _pieces(buffers):
            self._waiting.append(thread.submit(hasher.update, piece))
            if len(self._waiting) > _MAX_WAITING:
                self._waiting.popleft().result()
            yield piece
        self._made.append(thread.submit(hasher.digest))

    def digests(self) -> list[bytes]:
        """Wait for all digests, and return them in the order of the tensors."""
        return [made if isinstance(made, bytes) else made.result() for made in self._made]

    def _started(self) -> ThreadPoolExecutor:
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor  # 18 ms, which small tensors need not pay

            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tensorkeep-digest")
        return self._thread


def _pieces(buffers: Iterable[Buffer]) -> Iterator[memoryview]:
    """Cut large buffers, so that the first piece is being hashed while the second is not yet there."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for begin in range(0, len(view), WRITE_NBYTES):
            yield view[begin : begin + WRITE_NBYTES]
