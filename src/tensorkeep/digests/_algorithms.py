"""BLAKE3, and the algorithms of other formats, as values that say how bytes are summed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests._crc32c import Crc32c
from tensorkeep.parallel import LibraryThreads, may_start

if TYPE_CHECKING:
    from blake3 import blake3

DIGEST_NBYTES: Final = 32
"""Bytes of a digest."""

NO_DIGEST: Final = "0" * (2 * DIGEST_NBYTES)
"""What is in a text in place of its own digest while that is computed."""

_threads: Final = LibraryThreads()


def new_hasher(*, parallel: bool = False) -> blake3:
    """Return a hasher to feed with `update` and read with `digest`.

    Args:
        parallel: Whether each update may use all cores, where threads can do so; it pays from about 1 MiB per update.
    """
    blake3 = _blake3()
    if not parallel or _threads.are_lost or not _may_share_work():
        return blake3(max_threads=1)
    _threads.start()
    return blake3(max_threads=blake3.AUTO)


@cache
def _may_share_work() -> bool:
    """Whether BLAKE3 can start its threads, one for each core: it panics where the system refuses one."""
    return may_start(os.cpu_count() or 1)


@cache
def _blake3() -> type[blake3]:
    from blake3 import blake3  # late: it takes 3 ms, and reading tensors does not need it

    return blake3


def digest_of(data: Buffer) -> bytes:
    """Return the digest of some bytes.

    Args:
        data: The bytes.
    """
    return _blake3()(data).digest()


def keyed_digest(data: Buffer, key: bytes) -> bytes:
    """Return the digest of some bytes in BLAKE3's keyed mode.

    Args:
        data: The bytes.
        key: 32 bytes, which need not be secret: they say what is hashed.
    """
    return _blake3()(data, key=key).digest()


def new_keyed_hasher(key: bytes) -> blake3:
    """Return a hasher of BLAKE3's keyed mode.

    Args:
        key: 32 bytes.
    """
    return _blake3()(key=key)


def digest_of_text_with(digest: str, text: bytes) -> str:
    """Return the digest, as hexadecimal digits, of a text that holds its own: with zeros in its place.

    Args:
        digest: The digest in the text, as 64 hexadecimal digits; only its first occurrence counts.
        text: The text.
    """
    start = text.find(digest.encode())
    if start < 0:
        return digest_of(text).hex()
    view = memoryview(text)
    hasher = _blake3()(view[:start])
    hasher.update(NO_DIGEST.encode())
    hasher.update(view[start + len(digest) :])
    return hasher.hexdigest()


class Hasher(Protocol):
    """A checksum under way."""

    def update(self, data: Buffer, /) -> object:
        """Add bytes."""

    def digest(self) -> bytes:
        """Return the checksum of all bytes so far."""


class Algorithm(msgspec.Struct, frozen=True):
    """One way to sum bytes; any format may bring its own.

    Attributes:
        name: For people, such as `"CRC-32"`.
        new: Returns a new hasher; takes whether each update may use all cores.
    """

    name: str
    new: Callable[[bool], Hasher]

    def shown(self, digest: bytes) -> str:
        """Return a checksum for people: whole if it is short, and else its beginning.

        Args:
            digest: The checksum.
        """
        return f"0x{digest.hex()}" if len(digest) <= _SHORT_NBYTES else f"{digest.hex()[:16]}…"


_SHORT_NBYTES: Final = 8


class _Crc32:
    def __init__(self) -> None:
        from zlib_ng.zlib_ng import crc32  # ten times as fast as zlib's, and only needed here

        self._crc32 = crc32
        self._value = 0

    def update(self, data: Buffer, /) -> None:
        self._value = self._crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def _new_sha256(_: bool) -> Hasher:
    import hashlib  # 3 ms, which opening need not pay

    return hashlib.sha256()


def _new_sha1(_: bool) -> Hasher:
    import hashlib

    return hashlib.sha1(usedforsecurity=False)


def _new_blake2b(_: bool) -> Hasher:
    import hashlib

    return hashlib.blake2b()


BLAKE3: Final = Algorithm("digest", lambda parallel: new_hasher(parallel=parallel))
"""What files of ours carry for each tensor."""

SHA256: Final = Algorithm("SHA-256", _new_sha256)
"""The name that Git LFS and the Hugging Face Hub give to a file."""

SHA1: Final = Algorithm("SHA-1", _new_sha1)
"""What ONNX models may have of other files; it finds accidents, not attacks."""

BLAKE2B: Final = Algorithm("BLAKE2b", _new_blake2b)
"""What signatures of models may have of a file."""

CRC32: Final = Algorithm("CRC-32", lambda _: _Crc32())
"""What zip archives have of each member; its 4 bytes are big-endian here."""

CRC32C: Final = Algorithm("CRC-32C", lambda _: Crc32c())
"""What TensorFlow has of each tensor; its 4 bytes are big-endian here."""
