"""The manifest of a directory: which files were saved together, with their sizes and digests. Pure.

    {"digest":"<64 hexadecimal digits>","files":{"config.json":{"nbytes":…,"blake3":"…"},
     "model.safetensors":{"nbytes":…,"header":"…"}},"version":1}

Names are relative, separated by `/` and sorted. `blake3` is the digest of a whole file. A safetensors file with
digests has `header` instead: the digest of everything before its data, which includes the digest of each tensor.
`digest` is that of the text of `files`. A manifest is valid only if `emit_manifest` reproduces it byte for byte.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError
from tensorkeep.paths import is_inside

MANIFEST: Final = "tensorkeep.manifest.json"
_VERSION: Final = 1
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Size and digest of one file.

    Attributes:
        nbytes: Size in bytes.
        blake3: BLAKE3 of the whole file, as 64 hexadecimal digits.
        header: BLAKE3 of everything before the data of a safetensors file that has digests.
    """

    nbytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    blake3: _Digest | None = None
    header: _Digest | None = None


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: str
    files: dict[str, FileRecord]
    version: int


class _Version(msgspec.Struct, frozen=True):
    version: int


def emit_manifest(files: dict[str, FileRecord]) -> bytes:
    """Return the text of a manifest, sorted by name."""
    ordered = {name: files[name] for name in sorted(files)}
    digest = digest_of(msgspec.json.encode(ordered)).hex()
    return msgspec.json.encode(_Text(digest, ordered, _VERSION))


def parse_manifest(text: bytes, path: str) -> dict[str, FileRecord]:
    """Parse a manifest and check its digest."""
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != _VERSION:
            raise UnsupportedError("the manifest has a newer version", path=path, found=f"version {version}")
        files = msgspec.json.decode(text, type=_Text).files
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise FormatError("not a directory manifest", path=path, found=str(cause)) from cause
    for name, record in files.items():
        if not is_inside(name) or (record.blake3 is None) == (record.header is None):
            raise FormatError("not a directory manifest", path=path, found=f"{name!r}: {record}")
    if emit_manifest(files) != text:
        raise IntegrityError("the manifest changed after it was written", path=path)
    return files
