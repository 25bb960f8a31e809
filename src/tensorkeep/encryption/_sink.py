"""Encrypts a file while it is written: plain bytes go in, the bytes of the encrypted file come out.

The plain file's header comes first, with zeros for digests, and again at the end, with them: only then is it
encrypted. Each block of data is encrypted once, when it is full.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import DIGEST_NBYTES, new_hasher
from tensorkeep.digests.blocks import BlockHasher, BlockTree, binding_of, tree_of
from tensorkeep.encryption._cipher import BLOCK_NBYTES, STORED_BLOCK_NBYTES, TAG_NBYTES, stored_nbytes
from tensorkeep.encryption._content import FileSecrets
from tensorkeep.encryption._encryption import Encryption
from tensorkeep.entries import TensorEntry
from tensorkeep.formats.safetensors import ENCRYPTION_KEY, LENGTH_NBYTES, emit_sealed_header, parse_header
from tensorkeep.transport import ByteRange, ByteSink, ByteSource

_N_BLOCKS: Final = 64
"""Blocks that are encrypted before they are written: 4 MiB."""

_FORMAT: Final = {"format": "pt"}
"""Some libraries refuse a file whose metadata lacks this."""


def encrypted_name(file: str | None) -> str:
    """Return the name of the tensor in an encrypted file: in a shard, another one than in all others."""
    return "encrypted" if file is None else f"encrypted:{file}"


class EncryptingSink:
    """A `ByteSink` for a plain file with digests; another sink gets the encrypted file.

    Attributes:
        head: Everything before the data in the encrypted file, once that is complete.
        nbytes: Bytes of the encrypted file.
        tree: The digests of the blocks of its data, once it is complete, if they were asked for.
    """

    def __init__(
        self, sink: ByteSink, encryption: Encryption, name: str, index: str | None, *, has_blocks: bool = False
    ) -> None:
        self._sink = sink
        self._encryption = encryption
        self._name = name
        self._index = index
        self._plain_nbytes = 0
        self._head_nbytes = 0
        self._secrets: FileSecrets | None = None
        self._entries: Mapping[str, TensorEntry] = {}
        self._partial = bytearray()
        self._number = 0
        self._output = memoryview(bytearray(_N_BLOCKS * STORED_BLOCK_NBYTES))
        self._filled = 0
        self._hasher = new_hasher()
        self._blocks = BlockHasher() if has_blocks else None
        self._unused = Lock()
        self._process = os.getpid()
        self.head = b""
        self.nbytes = 0
        self.tree: BlockTree | None = None

    def preallocate(self, nbytes: int) -> None:
        """Take the size of the plain file, which comes before its first byte."""
        self._plain_nbytes = nbytes

    def _begin(self, head: Buffer) -> None:
        """Take the plain file's header, and write the encrypted file's, with zeros for all that comes later."""
        self._head_nbytes = len(head)
        data_nbytes = self._plain_nbytes - self._head_nbytes
        names = _names_in(head, data_nbytes) if self._encryption.shows_names else b""
        self._secrets = FileSecrets(self._encryption, data_nbytes, names)
        nbytes = stored_nbytes(data_nbytes)
        self._entries = {self._name: TensorEntry("U8", (nbytes,), (0, nbytes))}
        outer = self._emitted(self._secrets.placeholder(self._head_nbytes + TAG_NBYTES), bytes(DIGEST_NBYTES))
        self.nbytes = len(outer) + nbytes
        self._sink.preallocate(self.nbytes)
        self._sink.write([outer])

    def _emitted(self, text: str, digest: bytes) -> bytes:
        return emit_sealed_header(self._entries, {**_FORMAT, ENCRYPTION_KEY: text}, [digest], index=self._index)

    @contextmanager
    def _using(self, *, last: bool = False) -> Iterator[None]:
        """Let one call at a time do something: none after the last, after a failed one, or in a forked process.

        Any of these could encrypt other bytes with a nonce that was used.
        """
        if os.getpid() != self._process or not self._unused.acquire(blocking=False):
            raise RuntimeError(
                "a file that failed, is complete, or is being written elsewhere cannot be encrypted further"
            )
        yield
        if not last:
            self._unused.release()

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Take the header first, then encrypt the bytes of the data."""
        with self._using():
            self._write(buffers)

    def _write(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            if self._secrets is None:
                self._begin(buffer)
                continue
            rest = memoryview(buffer).cast("B")
            if self._partial:
                wanted = BLOCK_NBYTES - len(self._partial)
                self._partial += rest[:wanted]
                rest = rest[wanted:]
                if len(self._partial) < BLOCK_NBYTES:
                    continue
                self._encrypt(self._partial)
                self._partial = bytearray()
            n_whole = len(rest) // BLOCK_NBYTES
            for begin in range(0, n_whole * BLOCK_NBYTES, BLOCK_NBYTES):
                self._encrypt(rest[begin : begin + BLOCK_NBYTES])
            self._partial += rest[n_whole * BLOCK_NBYTES :]

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Encrypt the next bytes of the data, which are in a source."""
        for piece in source.pieces(span):
            self.write([piece])

    def _encrypt(self, plain: bytearray | memoryview) -> None:
        stop = self._filled + len(plain) + TAG_NBYTES
        self._secrets_of_file().blocks.encrypt(self._number, plain, self._output[self._filled : stop])
        self._number += 1
        self._filled = stop
        if stop > len(self._output) - STORED_BLOCK_NBYTES:
            self._flush()

    def _flush(self) -> None:
        done, self._filled = self._output[: self._filled], 0
        self._hasher.update(done)
        if self._blocks is not None:
            self._blocks.update(done)
        self._sink.write([done])

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Take the plain file's header again, now complete, and complete the encrypted file."""
        if offset or len(data) != self._head_nbytes:
            raise ValueError("only the header is written twice, in the same length")
        with self._using(last=True):
            self._finish(bytes(data))

    def _finish(self, head: bytes) -> None:
        if self._number * BLOCK_NBYTES + len(self._partial) != self._plain_nbytes - self._head_nbytes:
            raise ValueError("the file's bytes are not complete")
        if self._partial:
            self._encrypt(self._partial)
        self._flush()
        digest = self._hasher.digest()
        if self._blocks is not None:
            nbytes = self._entries[self._name].nbytes
            self.tree = tree_of(self._blocks.digests(), nbytes, binding_of([digest]))
        self.head = self._emitted(self._secrets_of_file().sealed(head), digest)
        self._sink.rewrite(0, self.head)

    def _secrets_of_file(self) -> FileSecrets:
        if self._secrets is None:
            raise ValueError("a file begins with its header")
        return self._secrets


def _names_in(head: Buffer, data_nbytes: int) -> bytes:
    """Return the header of a plain file without its metadata."""
    return msgspec.json.encode(parse_header(memoryview(head)[LENGTH_NBYTES:], data_nbytes).entries)
