"""The digests in a header, which protect every byte of the file: one of each tensor, and one of the header itself.

It is one JSON text under the metadata key `tensorkeep`, so every reader of the format still reads every tensor:

    {"tensorkeep":1,"digest":"<64 hexadecimal digits>","tensors":"<base64>","index":"model.safetensors.index.json"}

`digest` is the BLAKE3 of everything before the data, length field included, computed with zeros in place of these 64
digits. `tensors` has the BLAKE3 digests of the tensors, 32 bytes each, in the order of the data. `index` is only in
shards: it names the shard index, whose digests protect the set. docs/format.md specifies all of it.

The text begins with its own key. So no change of one byte can make a sealed header look like an unsealed one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import DIGEST_NBYTES, digest_of
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.formats.safetensors._emit import emit_header
from tensorkeep.formats.safetensors._parse import Header

SEAL_KEY: Final = "tensorkeep"
"""The metadata key."""

_VERSION: Final = 1
SEAL_SIGNATURE: Final = '{"tensorkeep":'
"""The start of its text."""

_ZEROS: Final = "0" * (2 * DIGEST_NBYTES)
_BEFORE_DIGEST: Final = b'"tensorkeep":"{\\"tensorkeep\\":1,\\"digest\\":\\"'
"""The text before the digest. It occurs only there: inside a JSON string, its first quote would be escaped."""

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
) -> bytes:
    """Encode everything before the data, with digests."""
    tensors = bytes(DIGEST_NBYTES * len(entries)) if digests is None else b"".join(digests)
    seal = Seal(_VERSION, _ZEROS, b64encode(tensors).decode(), index)
    head = emit_header(entries, {**(metadata or {}), SEAL_KEY: msgspec.json.encode(seal).decode()}, room=room)
    before, mark, after = head.partition(_BEFORE_DIGEST)
    return b"".join([before, mark, digest_of(head).hex().encode(), after[len(_ZEROS) :]])


def may_have_seal(header: Header) -> bool:
    """Say whether a header has digests, intact or damaged."""
    return any(key == SEAL_KEY or text.startswith(SEAL_SIGNATURE) for key, text in (header.metadata or {}).items())


def parse_seal(head: Buffer, header: Header) -> Seal | None:
    """Read the digests of a file, and check that its header is the one that was written."""
    text = _seal_text(header.metadata)
    if text is None:
        return None
    seal = _decode(text)
    raw = bytes(head)
    found = digest_of(raw.replace(seal.digest.encode(), _ZEROS.encode(), 1)).hex()
    if found != seal.digest:
        raise IntegrityError(
            "the header is not the one that was written",
            expected=f"digest {seal.digest}",
            found=found,
            hint="The file was damaged, or another program changed it and kept the digests of the old one",
        )
    if len(b64decode(seal.tensors)) != DIGEST_NBYTES * len(header.entries):
        raise IntegrityError(
            "the header does not have one digest per tensor",
            expected=f"{len(header.entries):,} digests",
            found=f"{len(b64decode(seal.tensors)):,} bytes",
        )
    return seal


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
            seal = msgspec.json.decode(text, type=Seal)
            b64decode(seal.tensors, validate=True)
            return seal
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise IntegrityError("the digests in the header are damaged", found=str(error)) from None
    raise UnsupportedError(
        "the digests in the header have a later version",
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep; check=False reads the tensors without their digests",
    )
