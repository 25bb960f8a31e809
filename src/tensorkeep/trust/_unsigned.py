"""Which files may be in a signed directory although nobody signed them."""

from __future__ import annotations

from tensorkeep.layout import MANIFEST
from tensorkeep.signing import holds_signature, is_ignored
from tensorkeep.trust._proof import Proof


def is_accounted_for(proof: Proof, name: str) -> bool:
    """Say whether a file was signed, is a signature, or may be there unsigned.

    A manifest may be, which a fetch writes into a directory with folders: it holds nothing but more digests to check.

    Args:
        proof: What was signed.
        name: Its name, relative to the directory.
    """
    return (
        name in proof.files
        or name == MANIFEST
        or is_ignored(name, proof.ignored)
        or holds_signature(proof.root, name)
    )
