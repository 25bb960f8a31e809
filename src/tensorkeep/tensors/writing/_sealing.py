"""`Sealing`: what a header with digests needs to know, and how its file is encrypted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.encryption import EncryptingSink, Encryption, encrypted_name
from tensorkeep.transport import ByteRange, ByteSink, ByteSource


class Sealing(msgspec.Struct, frozen=True):
    """What a header with digests needs to know.

    Attributes:
        index: Name of the index, if the file is a shard of a checkpoint; None for a single file.
        encryption: How the file is encrypted; None if it is not.
        file: Name of the file, if it is a shard.
    """

    index: str | None = None
    encryption: Encryption | None = None
    file: str | None = None

    def over(self, sink: ByteSink, *, has_blocks: bool = False) -> tuple[EncryptingSink, Sealing] | None:
        """Return a sink for the plain file whose encrypted form goes to another one; None if it is not encrypted."""
        if self.encryption is None:
            return None
        name = encrypted_name(self.file)
        plain = EncryptingSink(sink, self.encryption, name, self.index, has_blocks=has_blocks)
        return plain, Sealing(self.index)


def encrypted_nbytes(head: bytes, nbytes: int, sealing: Sealing) -> int:
    """Return the size of the encrypted form of a plain file with a header and a size."""
    if (over := sealing.over(_Nowhere())) is None:
        return nbytes
    sink, _ = over
    sink.preallocate(nbytes)
    sink.write([head])
    return sink.nbytes


class _Nowhere:
    """A `ByteSink` that drops everything."""

    def preallocate(self, nbytes: int) -> None:
        """Do nothing."""

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Do nothing."""

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Do nothing."""

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Do nothing."""
