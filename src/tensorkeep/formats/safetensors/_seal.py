"""The digests in a header, which protect every byte of the file: one of each tensor, and one of the header itself.

It is one JSON text under the metadata key `tensorkeep`, so every reader of the format still reads every tensor:

    {"tensorkeep":1,"digest":"<64 hexadecimal digits>","tensors":"<base64>","index":"model.safetensors.index.json"}

`digest` is the BLAKE3 of everything before the data, length field included, computed with zeros in place of these 64
digits. `tensors` has the BLAKE3 digests of the tensors, 32 bytes each, in the order of the data. `index` is only in
shards: it names the shard index, whose digests protect the set. docs/format.md specifies all of it.

The text begins with its own key. So no change of one byte can make a sealed header look like an unsealed one.
"""

from __future__ import annotations

import string
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import DIGEST_NBYTES, NO_DIGEST, digest_of, digest_of_text_with
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.formats.safetensors._arrangement import ALIGNMENT_NBYTES
from tensorkeep.formats.safetensors._emit import emit_header
from tensorkeep.formats.safetensors._parse import Header

SEAL_KEY: Final = "tensorkeep"
"""The metadata key."""

_VERSION: Final = 1
SEAL_SIGNATURE: Final = '{"tensorkeep":'
"""The start of its text."""

_BEFORE_DIGEST: Final = b'"tensorkeep":"{\\"tensorkeep\\":1,\\"digest\\":\\"'
"""The text before the digest. It occurs only there: inside a JSON string, its first quote would be escaped."""

_BASE64_DIGITS: Final = (string.ascii_letters + string.digits + "+/").encode()

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class _Version(msgspec.Struct, frozen=True):
    tensorkeep: int


class Seal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The digests of one file.

    Attributes:
        tensorkeep: Version of this text.
        digest: Digest of everything before the data, 64 hexadecimal digits.
        tensors: Digests of the tensors, in the order of the data, base64.
        index: Name of the shard index, or None if the file is not a shard.
    """

    tensorkeep: int
    digest: _Digest
    tensors: str
    index: str | None = None

    def tensor_digests(self) -> list[bytes]:
        """Return the digest of each tensor, in the order of the data."""
        digests = b64decode(self.tensors)
        return [digests[begin : begin + DIGEST_NBYTES] for begin in range(0, len(digests), DIGEST_NBYTES)]


def without_seal(metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return metadata without a seal, which applies to one file only."""
    if metadata is None or not metadata.get(SEAL_KEY, "").startswith(SEAL_SIGNATURE):
        return metadata
    return {key: text for key, text in metadata.items() if key != SEAL_KEY}


def emit_sealed_header(
    entries: Mapping[str, TensorEntry],
    metadata: Mapping[str, str] | None,
    digests: Iterable[bytes] | None,
    *,
    index: str | None = None,
    room: int = 0,
    align: int = ALIGNMENT_NBYTES,
) -> bytes:
    """Encode everything before the data, with digests."""
    tensors = bytes(DIGEST_NBYTES * len(entries)) if digests is None else b"".join(digests)
    seal = Seal(_VERSION, NO_DIGEST, b64encode(tensors).decode(), index)
    head = emit_header(
        entries, {**(metadata or {}), SEAL_KEY: msgspec.json.encode(seal).decode()}, room=room, align=align
    )
    before, mark, after = head.partition(_BEFORE_DIGEST)
    return b"".join([before, mark, digest_of(head).hex().encode(), after[len(NO_DIGEST) :]])


def may_have_seal(header: Header) -> bool:
    """Say whether a header has digests, intact or damaged."""
    return any(key == SEAL_KEY or text.startswith(SEAL_SIGNATURE) for key, text in (header.metadata or {}).items())


def parse_seal(head: Buffer, header: Header) -> Seal | None:
    """Read the digests of a file, and check that its header is the one that was written."""
    text = _seal_text(header.metadata)
    if text is None:
        return None
    seal = _decode(text)
    found = digest_of_text_with(seal.digest, bytes(head))
    if found != seal.digest:
        raise IntegrityError(
            "the header is not the one that was written",
            expected=f"digest {seal.digest}",
            found=found,
            hint="The file was damaged, or another program changed it and kept the digests of the old one",
        )
    _check_count(seal.tensors, len(header.entries))
    return seal


def _check_count(digests: str, n_tensors: int) -> None:
    """Check that there is one digest per tensor; they are decoded when they are needed."""
    nbytes = DIGEST_NBYTES * n_tensors
    padding = "=" * (-nbytes % 3)
    if len(digests) != 4 * ((nbytes + 2) // 3) or not digests.endswith(padding):
        raise IntegrityError(
            "the header does not have one digest per tensor",
            expected=f"{n_tensors:,} digests",
            found=f"{len(digests):,} digits of base64",
        )
    if digests.removesuffix(padding).encode(errors="replace").translate(None, _BASE64_DIGITS):
        raise IntegrityError("the digests in the header are damaged", found="text that is not base64")


def _seal_text(metadata: Mapping[str, str] | None) -> str | None:
    """Find the text of the seal, and refuse one whose key or start is damaged."""
    for key, text in (metadata or {}).items():
        if text.startswith(SEAL_SIGNATURE) or key == SEAL_KEY:
            if key != SEAL_KEY or not text.startswith(SEAL_SIGNATURE):
                raise IntegrityError("the digests in the header are damaged", found=f"metadata key {key!r}")
            return text
    return None


def _decode(text: str) -> Seal:
    try:
        version = msgspec.json.decode(text, type=_Version).tensorkeep
        if version == _VERSION:
            return msgspec.json.decode(text, type=Seal)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise IntegrityError("the digests in the header are damaged", found=str(error)) from None
    raise UnsupportedError(
        "the digests in the header have a later version",
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep; check=False reads the tensors without their digests",
    )
