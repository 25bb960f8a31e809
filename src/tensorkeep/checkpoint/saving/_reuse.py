"""Files of an older checkpoint that would be written again byte for byte, so that they need not be.

A file that another checkpoint gets too must be whole, so its header is not believed: its bytes are read, once, and
each piece is looked at twice while it is in the processor's caches. It is compared with the tensor in memory: a byte
that was damaged on the disk differs from it, and the file is written anew. That alone does not do, for a tensor may
have been loaded from this very file when it was damaged already, or be mapped from it to this day: then both are
equal, and wrong. So what is read must have the digest that the header promises, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.arrays.elements import equal_bytes
from tensorkeep.buffers import Buffer
from tensorkeep.digests import new_hasher
from tensorkeep.errors import SourceChangedError
from tensorkeep.formats.safetensors import emit_sealed_header
from tensorkeep.kinds.safetensors import TensorFile
from tensorkeep.tensors import StoredTensor, metadata_with_format
from tensorkeep.transport import ByteRange, LocalFile

_LOOKED_AT_ONCE: Final = 2**18
"""Bytes that are compared and digested one after the other: they and their twins in memory fit into the caches."""

_Layout = frozenset[tuple[str, str, tuple[int, ...]]]
"""Name, dtype and shape of each tensor; their order in a file follows from that."""


class Reusable(msgspec.Struct, frozen=True):
    """A file that is what would be written.

    Attributes:
        source: The file, open.
        head: All that stands before its data.
    """

    source: LocalFile
    head: bytes


class OlderFiles:
    """The files of an older checkpoint, by what stands in them."""

    def __init__(self, files: Iterable[TensorFile]) -> None:
        self._files = {
            _layout((name, entry.dtype, entry.shape) for name, entry in file.entries.items()): file
            for file in files
            if file.seal is not None
        }

    def __bool__(self) -> bool:
        return bool(self._files)

    def find(
        self, to_write: Mapping[str, TensorToWrite], metadata: Mapping[str, str] | None, *, index: str
    ) -> Reusable | None:
        """Return the file that is, byte for byte, what would be written; looks at no more of it than it has to."""
        file = self._files.get(_layout((name, host.dtype.name, host.shape) for name, host in to_write.items()))
        if file is None or file.seal is None or not isinstance(file.source, LocalFile):
            return None
        digests = dict(zip(file.entries, file.seal.tensor_digests(), strict=True))
        said = metadata_with_format(metadata)
        try:
            head = bytes(file.source.read(ByteRange(0, file.data_start)))
            if emit_sealed_header(file.entries, said, list(digests.values()), index=index) != head:
                return None
            is_same = _may_be_same(to_write, digests) and all(
                _is_same(to_write[name], file.source, file.span_of(name), digest) for name, digest in digests.items()
            )
        except SourceChangedError:  # cut off by somebody
            return None
        return Reusable(file.source, head) if is_same else None


def _layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> _Layout:
    return frozenset(tensors)


def _known_digest(host: TensorToWrite) -> bytes | None:
    return host.digest if isinstance(host, StoredTensor) else None


def _may_be_same(to_write: Mapping[str, TensorToWrite], digests: Mapping[str, bytes]) -> bool:
    """Look at what takes no time: the digests that tensors of other files carry along."""
    return all(_known_digest(to_write[name]) in {None, digest} for name, digest in digests.items())


def _is_same(host: TensorToWrite, source: LocalFile, span: ByteRange, digest: bytes) -> bool:
    """Say whether a tensor's bytes stand in a file, and have the digest that is said of them.

    One that carries its digest along, which is the same by now, need not be compared as well.
    """
    tensor = None if _known_digest(host) else _Passing(host.buffers())
    hasher = new_hasher()
    for piece in source.pieces(span):
        with memoryview(piece) as whole:
            for begin in range(0, len(whole), _LOOKED_AT_ONCE):
                with whole[begin : begin + _LOOKED_AT_ONCE] as part:
                    if tensor is not None and not tensor.goes_on_with(part):
                        return False
                    hasher.update(part)
    return hasher.digest() == digest


class _Passing:
    """Bytes that are compared with others as they pass."""

    def __init__(self, buffers: Iterator[Buffer]) -> None:
        self._buffers = buffers
        self._rest = memoryview(b"")

    def goes_on_with(self, part: memoryview) -> bool:
        """Take as many bytes as there are in `part`, and say whether they are the same."""
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
