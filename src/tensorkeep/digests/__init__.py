"""Checksums of bytes: BLAKE3, which files of ours carry, and the algorithms of other formats.

BLAKE3 is cryptographic, and about four times as fast on one core as SHA-256 where that has instructions of its own.

- `_crc32c`: CRC-32C, summed by NumPy.
- `_algorithms`: BLAKE3, and every algorithm as an `Algorithm`.
- `blocks/`: block digests, and the tree above them.
"""

from tensorkeep.digests._algorithms import (
    BLAKE2B,
    BLAKE3,
    CRC32,
    CRC32C,
    DIGEST_NBYTES,
    NO_DIGEST,
    SHA1,
    SHA256,
    Algorithm,
    Hasher,
    digest_of,
    digest_of_text_with,
    keyed_digest,
    new_hasher,
    new_keyed_hasher,
)
from tensorkeep.digests._crc32c import Crc32c, crc32c, masked, unmasked

__all__ = [
    "BLAKE2B",
    "BLAKE3",
    "CRC32",
    "CRC32C",
    "DIGEST_NBYTES",
    "NO_DIGEST",
    "SHA1",
    "SHA256",
    "Algorithm",
    "Crc32c",
    "Hasher",
    "crc32c",
    "digest_of",
    "digest_of_text_with",
    "keyed_digest",
    "masked",
    "new_hasher",
    "new_keyed_hasher",
    "unmasked",
]
