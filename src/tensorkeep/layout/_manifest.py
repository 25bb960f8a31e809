"""The manifest of a directory: which files were saved together, and by what to know each. Pure.

    {"digest":"<64 hexadecimal digits>","files":{"config.json":{"nbytes":…,"blake3":"…"},
     "model.safetensors":{"nbytes":…,"header":"…"}},"version":1}

Names are relative, with `/` between their parts, in the order of the alphabet. `header` is the BLAKE3 of all that
stands before the data of a safetensors file, which holds the digests of all tensors itself; `blake3` is that of a
whole file. `digest` is the BLAKE3 of the text of `files`. The text is what `emit_manifest` gives, byte for byte.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError

MANIFEST: Final = "tensorkeep.manifest.json"
_VERSION: Final = 1
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """By what to know one file.

    Attributes:
        nbytes: Its size in bytes.
        blake3: BLAKE3 of all of it, as 64 hexadecimal digits.
        header: That of all that stands before the data of a safetensors file that has digests.
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
    """Return the text of a manifest."""
    ordered = {name: files[name] for name in sorted(files)}
    digest = digest_of(msgspec.json.encode(ordered)).hex()
    return msgspec.json.encode(_Text(digest, ordered, _VERSION))


def parse_manifest(text: bytes, path: str) -> dict[str, FileRecord]:
    """Read a manifest, and check that it is the one that was written."""
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != _VERSION:
            raise UnsupportedError("the manifest is of a later version", path=path, found=f"version {version}")
        files = msgspec.json.decode(text, type=_Text).files
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise FormatError("no manifest of a directory", path=path, found=str(cause)) from cause
    for name, record in files.items():
        if not _is_within(name) or (record.blake3 is None) == (record.header is None):
            raise FormatError("no manifest of a directory", path=path, found=f"{name!r}: {record}")
    if emit_manifest(files) != text:
        raise IntegrityError("the manifest is not the one that was written", path=path)
    return files


def _is_within(name: str) -> bool:
    """Say whether a name is plain, relative, and leads to no other place, on any system."""
    return not set(name) & {"\\", ":", "\0"} and all(part not in {"", ".", ".."} for part in name.split("/"))
