"""Whether a key made the signature of a bundle."""

from __future__ import annotations

from tensorkeep.signing._bundle import Bundle, early_signed_bytes, signed_bytes
from tensorkeep.signing._keys import PublicKey


def is_signed_by(bundle: Bundle, key: PublicKey) -> bool:
    """Say whether a key made a signature, also with model-signing 0.2, which used SHA-256 for each curve."""
    return key.has_signed(signed_bytes(bundle.payload), bundle.signature) or key.has_signed(
        early_signed_bytes(bundle.payload), bundle.signature, hash_name="SHA256"
    )
