"""Whether a signature proves a file: by its header if it has digests, else whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorkeep.transport import ByteSource

if TYPE_CHECKING:
    from tensorkeep.formats.safetensors import Seal
    from tensorkeep.trust import Proof


def prove_file(
    proof: Proof, name: str, source: ByteSource, seal: Seal | None, header_digest: bytes, *, is_recorded: bool
) -> None:
    """Refuse a file unless it is what was signed; `is_recorded` if a signed index has its header's digest."""
    is_signed = name in proof.files and proof.check_header(name, source.nbytes, header_digest)
    if seal is None or not (is_signed or is_recorded):
        proof.check_whole(name, source)
