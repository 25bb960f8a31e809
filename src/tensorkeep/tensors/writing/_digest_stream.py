"""Digests of tensors, computed by another thread while their bytes are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Self

from tensorkeep.buffers import Buffer
from tensorkeep.digests import digest_of, new_hasher
from tensorkeep.limits import HASHED_APART_NBYTES, WRITE_NBYTES
from tensorkeep.parallel import Workers

if TYPE_CHECKING:
    from concurrent.futures import Future

    from blake3 import blake3


_MAX_WAITING: Final = 4
"""Pieces that may wait to be hashed; more would keep memory if they are copies."""


class Digesting:
    """Computes the digest of each tensor, in order; a context manager, which ends its thread."""

    def __init__(self) -> None:
        self._made: list[bytes | Future[bytes]] = []
        self._waiting: deque[Future[blake3]] = deque()
        self._thread: Workers | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel=True)

    def carry(self, digest: bytes) -> None:
        """Take the digest of the next tensor, which is known."""
        self._made.append(digest)

    def passing(self, nbytes: int, buffers: Iterable[Buffer]) -> Iterator[Buffer]:
        """Pass the bytes of the next tensor on, and hash them."""
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

    def _started(self) -> Workers:
        if self._thread is None:
            self._thread = Workers(1, "tensorkeep-digest")
        return self._thread


def _pieces(buffers: Iterable[Buffer]) -> Iterator[memoryview]:
    """Cut large buffers, so that one piece is hashed while the next is made."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for begin in range(0, len(view), WRITE_NBYTES):
            yield view[begin : begin + WRITE_NBYTES]
