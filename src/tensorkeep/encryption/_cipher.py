"""Keys derived by HKDF, and AES-256-GCM with them, by the `cryptography` package. Nothing else encrypts.

Every cipher has a salt, and so keys, of its own. Its caller encrypts everything once: an `EncryptingSink` takes each
block once, and a content is encrypted where its salt is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tensorkeep.errors import IntegrityError, importing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_NBYTES: Final = 32
SALT_NBYTES: Final = 32
TAG_NBYTES: Final = 16
BLOCK_NBYTES: Final = 65_536
"""Bytes of plain data in a block."""

STORED_BLOCK_NBYTES: Final = BLOCK_NBYTES + TAG_NBYTES
_NONCE_NBYTES: Final = 12
_ID_NBYTES: Final = 16
_Bytes: TypeAlias = bytes | bytearray | memoryview
_LABEL: Final = b"tensorkeep encryption 1 "


def stored_nbytes(nbytes: int) -> int:
    """Return the bytes of the blocks of plain data, with their tags."""
    return nbytes + TAG_NBYTES * -(-nbytes // BLOCK_NBYTES)


def key_id(secret: bytes) -> str:
    """Return the id of a key, 32 hexadecimal digits."""
    return _derived(secret, None, b"id", _ID_NBYTES).hex()


class ContentCipher:
    """Encrypts one content, or decrypts it."""

    def __init__(self, secret: bytes, salt: bytes, what: str) -> None:
        self._aes = _aes(secret, salt, what.encode())

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
                "the encrypted part of the header or index is not what was written",
                hint="It was changed or damaged; get it again from where it was whole",
            ) from None


class BlockCipher:
    """Encrypts and decrypts the blocks of one file; usable from several threads."""

    def __init__(self, secret: bytes, salt: bytes, nbytes: int) -> None:
        self._aes = _aes(secret, salt, b"data")
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
                hint="It was changed or damaged; `tensorkeep verify` lists everything that was",
            ) from None


def _aes(secret: bytes, salt: bytes, info: bytes) -> AESGCM:
    with importing(cryptography="'tensorkeep[trust]'"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_derived(secret, salt, info, KEY_NBYTES))


def _derived(secret: bytes, salt: bytes | None, info: bytes, nbytes: int) -> bytes:
    with importing(cryptography="'tensorkeep[trust]'"):
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), nbytes, salt, _LABEL + info).derive(secret)


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
