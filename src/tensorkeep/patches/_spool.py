"""Bytes that wait in a file without a name until it is known how many there are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final, Self

import numpy as np

from tensorkeep.arrays import StreamedTensor
from tensorkeep.buffers import Buffer
from tensorkeep.deltas.encoding import TABLE_DTYPE
from tensorkeep.dtypes import BY_NAME
from tensorkeep.encryption import ScratchCipher
from tensorkeep.errors import as_transport_error
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.tensors import check_target
from tensorkeep.transport import is_remote

_U8: Final = BY_NAME["U8"]


def spool_directory(path: str | os.PathLike[str]) -> str:
    """Return where bytes wait that will be written to a path: beside it, or here if it is a URL."""
    target = check_target(path)
    return tempfile.gettempdir() if is_remote(target) else os.path.dirname(target) or os.curdir


class Spool:
    """A context manager; several threads may add. If it is encrypted, the disk never has the plain bytes."""

    def __init__(self, directory: str, *, is_encrypted: bool = False) -> None:
        self._directory = directory
        self._cipher = ScratchCipher() if is_encrypted else None
        self._end = 0
        self._lock = Lock()

    def __enter__(self) -> Self:
        with as_transport_error("could not make a temporary file", self._directory):
            self._file = tempfile.TemporaryFile(dir=self._directory)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, data: bytes) -> int:
        """Keep some bytes, and return where they are."""
        with self._lock:
            start = self._end
            self._end += len(data)
        rest, place = memoryview(data if self._cipher is None else self._cipher.apply(data, start)), start
        with as_transport_error("could not write the differences", self._directory):
            while rest:
                n_written = os.pwrite(self._file.fileno(), rest, place)
                rest, place = rest[n_written:], place + n_written
        return start

    def read(self, start: int, nbytes: int) -> bytes:
        """Return bytes that were added."""
        with as_transport_error("could not read the differences", self._directory):
            data = os.pread(self._file.fileno(), nbytes, start)
        return data if self._cipher is None else self._cipher.apply(data, start)


class SpooledDelta:
    """The differences of one tensor, block by block, in a spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._blocks: list[tuple[int, int]] = []

    def add(self, block: bytes) -> None:
        """Add the next block; no bytes if nothing differs."""
        self._blocks.append((self._spool.add(block) if block else 0, len(block)))

    def tensor_to_write(self) -> StreamedTensor:
        """Describe the table of the blocks and the blocks as one tensor."""
        nbytes = sum(length for _, length in self._blocks) + len(self._blocks) * TABLE_DTYPE.itemsize
        return StreamedTensor(_U8, (nbytes,), nbytes, self._buffers)

    def _buffers(self) -> Iterator[Buffer]:
        table: Any = np.array([length for _, length in self._blocks], TABLE_DTYPE)
        yield table.data.cast("B")
        begin = end = 0
        for start, length in [block for block in self._blocks if block[1]]:
            if begin < end and (start != end or end - begin > WRITE_NBYTES):
                yield self._spool.read(begin, end - begin)
                begin = end
            if begin == end:
                begin = start
            end = start + length
        if begin < end:
            yield self._spool.read(begin, end - begin)
