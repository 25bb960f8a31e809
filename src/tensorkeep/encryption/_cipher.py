"""AES-256-GCM by the `cryptography` package, with derived keys. Nothing else encrypts.

Every cipher has a salt, and so keys, of its own. Its caller encrypts everything once: an `EncryptingSink` takes each
block once, and a content is encrypted where its salt is drawn.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorkeep.buffers import Buffer
from tensorkeep.encryption._key import KEY_NBYTES, Key
from tensorkeep.errors import IntegrityError, importing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SALT_NBYTES: Final = 32
TAG_NBYTES: Final = 16
BLOCK_NBYTES: Final = 65_536
"""Bytes of plain data in a block."""

STORED_BLOCK_NBYTES: Final = BLOCK_NBYTES + TAG_NBYTES
_NONCE_NBYTES: Final = 12
_AES_BLOCK_NBYTES: Final = 16
_Bytes: TypeAlias = bytes | bytearray | memoryview


def stored_nbytes(nbytes: int) -> int:
    """Return the bytes of the blocks of plain data, with their tags."""
    return nbytes + TAG_NBYTES * -(-nbytes // BLOCK_NBYTES)


class ContentCipher:
    """Encrypts one content, or decrypts it."""

    def __init__(self, key: Key, salt: bytes, what: str) -> None:
        self._aes = _aes(key, salt, what.encode())

    def seal(self, content: bytes, context: bytes) -> bytes:
        """Encrypt the content; to be called once."""
        return self._aes.encrypt(bytes(_NONCE_NBYTES), content, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt it; IntegrityError if it, or its context, is not what was encrypted."""
        invalid = _invalid_tag()
        try:
            return self._aes.decrypt(bytes(_NONCE_NBYTES), sealed, context)
        except invalid:
            raise IntegrityError(
                "the encrypted header or index is not what was written",
                hint="It was changed or damaged; get an undamaged copy",
            ) from None


class BlockCipher:
    """Encrypts and decrypts the blocks of one file; usable from several threads."""

    def __init__(self, key: Key, salt: bytes, nbytes: int) -> None:
        self._aes = _aes(key, salt, b"data")
        self._context = nbytes.to_bytes(8, "big")
        self._invalid = _invalid_tag()

    def encrypt(self, number: int, plain: _Bytes, into: memoryview) -> None:
        """Encrypt a block into memory of its size and a tag; to be called once for each number."""
        self._aes.encrypt_into(number.to_bytes(_NONCE_NBYTES, "big"), plain, self._context, into)

    def decrypt(self, number: int, stored: _Bytes, into: memoryview) -> None:
        """Decrypt a block into memory of its size; IntegrityError if it is not what was encrypted there."""
        try:
            self._aes.decrypt_into(number.to_bytes(_NONCE_NBYTES, "big"), stored, self._context, into)
        except self._invalid:
            into[:] = bytes(len(into))  # nothing that is not authenticated may be left there
            raise IntegrityError(
                f"the encrypted block {number:,} is not what was written",
                hint="It was changed or damaged; `tensorkeep verify` lists all damage",
            ) from None


class ScratchCipher:
    """Encrypts a temporary file of this process, whose key nobody else ever has; any part of it can be read again.

    AES-256 in counter mode, by the position in the file. Every position must be written once. Bytes are not
    authenticated: the file is read by this process alone.
    """

    def __init__(self) -> None:
        with importing(cryptography="'tensorkeep[trust]'"):
            from cryptography.hazmat.primitives.ciphers.algorithms import AES256
        self._algorithm = AES256(os.urandom(KEY_NBYTES))
        self._process = os.getpid()

    def apply(self, data: Buffer, position: int) -> bytes:
        """Encrypt the bytes at a position, or decrypt them; a forked process could use the position again."""
        if os.getpid() != self._process:
            raise RuntimeError("a temporary file of another process is not written")
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.modes import CTR

        block, skipped = divmod(position, _AES_BLOCK_NBYTES)
        stream = Cipher(self._algorithm, CTR(block.to_bytes(_AES_BLOCK_NBYTES, "big"))).encryptor()
        stream.update(bytes(skipped))
        return stream.update(memoryview(data))


def _aes(key: Key, salt: bytes, info: bytes) -> AESGCM:
    with importing(cryptography="'tensorkeep[trust]'"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.derived(salt, info))


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
