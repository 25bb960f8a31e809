"""Contents of envelopes, encrypted and decrypted. The only place where salts are drawn."""

from __future__ import annotations

import os
from typing import Final, NoReturn

from tensorkeep.encryption._cipher import SALT_NBYTES, BlockCipher, ContentCipher
from tensorkeep.encryption._encryption import Encryption
from tensorkeep.encryption._envelope import Envelope, Sealed, emit, parse
from tensorkeep.encryption._key import Key
from tensorkeep.encryption._keys import Keys
from tensorkeep.errors import IntegrityError

HEADER: Final = "header"
_INDEX: Final = "index"


class FileSecrets:
    """The keys of one new file, with a salt of their own."""

    def __init__(self, encryption: Encryption, nbytes: int, names: bytes) -> None:
        salt = os.urandom(SALT_NBYTES)
        self._envelope = Envelope.of(encryption.key.id, salt, nbytes, names)
        self._content: ContentCipher | None = ContentCipher(encryption.key, salt, HEADER)
        self.blocks = BlockCipher(encryption.key, salt, nbytes)

    def placeholder(self, nbytes: int) -> str:
        """Return a text of the final length, with zeros for the content."""
        return emit(self._envelope, bytes(nbytes))

    def sealed(self, content: bytes) -> str:
        """Return the final text; once."""
        cipher, self._content = self._content, None
        if cipher is None:
            raise RuntimeError("a header is encrypted once")
        return emit(self._envelope, cipher.seal(content, self._envelope.public()))

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a file that is being written stay in its process")


def encrypted_index(encryption: Encryption, text: bytes, names: bytes) -> str:
    """Encrypt the text of a plain index."""
    salt = os.urandom(SALT_NBYTES)
    envelope = Envelope.of(encryption.key.id, salt, 0, names if encryption.shows_names else b"")
    return emit(envelope, ContentCipher(encryption.key, salt, _INDEX).seal(text, envelope.public()))


def decrypted_index(text: str, keys: Keys, path: str) -> tuple[bytes | None, bytes]:
    """Return the text of the plain index, None without a key; and what is shown of names, as JSON."""
    sealed = parse(text, path)
    key = keys.find(sealed.envelope.key, path)
    content = None if key is None else decrypted(sealed, key, _INDEX, path)
    return content, bytes(sealed.envelope.names)


def decrypted(sealed: Sealed, key: Key, what: str, path: str) -> bytes:
    """Decrypt a content."""
    try:
        cipher = ContentCipher(key, sealed.envelope.salt_bytes, what)
        return cipher.open(sealed.content, sealed.public)
    except IntegrityError as error:
        raise error.with_fields(path=path) from None
