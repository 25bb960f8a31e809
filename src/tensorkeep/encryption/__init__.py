"""Encrypted files that stay lazy: a plain safetensors file inside another one, encrypted in blocks of 64 KiB.

docs/encryption.md specifies the format. An encrypted file is a sink that a plain file is written to, and a source
that it is read from, so nothing else needs to know that there is encryption.

- `_key`: `Key`: its bytes, where they are from, and keys derived from them by HKDF.
- `_keys`: `Keys`, those that somebody gave, or that the environment has.
- `_cipher`: AES-256-GCM of the `cryptography` package; the only file that encrypts.
- `_envelope`: the text with what is public, and an encrypted content. Pure.
- `_content`: contents of envelopes, encrypted and decrypted.
- `_encryption`: `Encryption`, how something is saved.
- `_sink`: encrypts a file while it is written.
- `_blocks`: which blocks some ranges touch. Pure.
- `_source`: decrypts what is read of a file.
- `_scratch`: temporary files.
- `_file`: the plain file in an encrypted one.
"""

from tensorkeep.encryption._cipher import BLOCK_NBYTES, STORED_BLOCK_NBYTES, ScratchCipher, stored_nbytes
from tensorkeep.encryption._content import decrypted_index, encrypted_index
from tensorkeep.encryption._encryption import Encryption
from tensorkeep.encryption._file import is_encrypted, listed, plain_file
from tensorkeep.encryption._key import Key, may_be_key, new_key
from tensorkeep.encryption._keys import KeyLike, Keys, refuse_plain
from tensorkeep.encryption._scratch import ScratchSource, ScratchWriter
from tensorkeep.encryption._sink import EncryptingSink, encrypted_name
from tensorkeep.encryption._source import NEEDS_KEY, DecryptingSource, LockedSource

__all__ = [
    "BLOCK_NBYTES",
    "NEEDS_KEY",
    "STORED_BLOCK_NBYTES",
    "DecryptingSource",
    "EncryptingSink",
    "Encryption",
    "Key",
    "KeyLike",
    "Keys",
    "LockedSource",
    "ScratchCipher",
    "ScratchSource",
    "ScratchWriter",
    "decrypted_index",
    "encrypted_index",
    "encrypted_name",
    "is_encrypted",
    "listed",
    "may_be_key",
    "new_key",
    "plain_file",
    "refuse_plain",
    "stored_nbytes",
]
