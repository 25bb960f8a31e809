"""Files of an older checkpoint that a save would write again byte for byte, and links instead.

A file that two checkpoints share must be whole, so its header is not trusted: its bytes are read once, and each piece
is checked twice while it is in the processor's caches.

1. It is compared with the tensor in memory. If a byte was damaged on the disk, they differ, and the file is written.
2. It must have the digest in the header. A tensor that was loaded from this file after the damage, or is mapped from
   it, would be equal to the damaged bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.arrays.elements import equal_bytes
from tensorkeep.buffers import Buffer
from tensorkeep.digests import new_hasher
from tensorkeep.errors import SourceChangedError
from tensorkeep.formats.safetensors import Arrangement
from tensorkeep.kinds.safetensors import TensorFile
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors import Sealing, StoredTensor, sealed_head
from tensorkeep.transport import ByteRange, ByteSource, LocalFile

_LOOKED_AT_ONCE: Final = 2**18
"""Bytes to compare and then digest at a time: they and their counterpart in memory fit into the caches."""

_MAX_THREADS: Final = 4
"""Threads that compare; a save in the background must leave cores to the training."""

_Layout = frozenset[tuple[str, str, tuple[int, ...]]]
"""Name, dtype and shape of each tensor; with the arrangement, these determine their order in a file."""


class Reusable(msgspec.Struct, frozen=True):
    """A file that equals the one to write.

    Attributes:
        source: The file, open.
        head: Its header.
    """

    source: LocalFile
    head: bytes


class OlderFiles:
    """The files of an older checkpoint, by their contents."""

    def __init__(self, files: Iterable[TensorFile]) -> None:
        self._files = {
            _layout((name, entry.dtype, entry.shape) for name, entry in file.entries.items()): file
            for file in files
            if file.seal is not None
        }

    def __bool__(self) -> bool:
        return bool(self._files)

    def find(
        self,
        to_write: Mapping[str, TensorToWrite],
        metadata: Mapping[str, str] | None,
        *,
        sealing: Sealing,
        arrangement: Arrangement,
    ) -> Reusable | None:
        """Return the file that equals, byte for byte, the one to write; reads no more of it than needed."""
        if sealing.encryption is not None:  # no two encrypted files are equal, and a plain one must not replace it
            return None
        file = self._files.get(_layout((name, host.dtype.name, host.shape) for name, host in to_write.items()))
        if file is None or file.seal is None or not isinstance(file.source, LocalFile):
            return None
        digests = dict(zip(file.entries, file.seal.tensor_digests(), strict=True))
        expected, _ = sealed_head(
            to_write, metadata, state=None, sealing=sealing, digests=digests, arrangement=arrangement
        )
        try:
            head = bytes(file.source.read(ByteRange(0, file.data_start)))
            if expected != head:
                return None
            is_same = _may_be_same(to_write, digests) and _are_same(to_write, file, digests)
        except SourceChangedError:  # truncated meanwhile
            return None
        return Reusable(file.source, head) if is_same else None


def _layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> _Layout:
    return frozenset(tensors)


def _known_digest(host: TensorToWrite) -> bytes | None:
    return host.digest if isinstance(host, StoredTensor) else None


def _may_be_same(to_write: Mapping[str, TensorToWrite], digests: Mapping[str, bytes]) -> bool:
    """Compare the digests that tensors of other files carry, which takes no time."""
    return all(_known_digest(to_write[name]) in {None, digest} for name, digest in digests.items())


def _are_same(to_write: Mapping[str, TensorToWrite], file: TensorFile, digests: Mapping[str, bytes]) -> bool:
    def check(name: str) -> None:
        if not _is_same(to_write[name], file.source, file.span_of(name), digests[name]):
            raise _DifferentError

    try:
        parallel_for_each(digests, check, n_threads=min(_MAX_THREADS, os.cpu_count() or 1))
    except _DifferentError:
        return False
    return True


class _DifferentError(Exception):
    """A tensor differs, so that the others need not be compared."""


def _is_same(host: TensorToWrite, source: ByteSource, span: ByteRange, digest: bytes) -> bool:
    """Say whether a file has a tensor's bytes, and these have the digest in its header.

    A tensor that carries a digest need not be compared: its digest is known to be the same.
    """
    tensor = None if _known_digest(host) else _Comparison(host.buffers())
    hasher = new_hasher()
    for piece in source.pieces(span):
        with memoryview(piece) as whole:
            for begin in range(0, len(whole), _LOOKED_AT_ONCE):
                with whole[begin : begin + _LOOKED_AT_ONCE] as part:
                    if tensor is not None and not tensor.continues_with(part):
                        return False
                    hasher.update(part)
    return hasher.digest() == digest


class _Comparison:
    """The bytes of a tensor, compared piece by piece with others."""

    def __init__(self, buffers: Iterator[Buffer]) -> None:
        self._buffers = buffers
        self._rest = memoryview(b"")

    def continues_with(self, part: memoryview) -> bool:
        """Say whether the next bytes of the tensor equal `part`."""
        done = 0
        while done < len(part):
            if not self._rest:
                following = next(self._buffers, None)
                if following is None:
                    return False
                self._rest = memoryview(following).cast("B")
            size = min(len(self._rest), len(part) - done)
            if not equal_bytes(self._rest[:size], part[done : done + size]):
                return False
            self._rest = self._rest[size:]
            done += size
        return True
