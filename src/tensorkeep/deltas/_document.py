"""The description in a directory that holds a checkpoint and its patches. Pure.

{"patched":1,"check":"<64 digits>","base":"base","patches":["1.patch.safetensors","2.patch.safetensors"],
"digest":"<64 digits>","state":null,"metadata":null,"index":{"tensorkeep_store":{"step":120}}}
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from tensorkeep.digests import NO_DIGEST, digest_of, digest_of_text_with
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError
from tensorkeep.limits import MAX_PATCHES
from tensorkeep.paths import is_plain_name

DOCUMENT_NAME: Final = "patched.json"
"""The name of the file; it is written last."""

_VERSION: Final = 1

_Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class PatchedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is another one, seen through patches.

    Attributes:
        patched: Version of this text.
        check: BLAKE3 of this text with these digits replaced by zeros.
        base: The directory of the other one, beside this file.
        patches: The patches beside this file, in their order.
        digest: BLAKE3 of the names, dtypes, shapes and digests of the stored tensors; see `digest_of_contents`.
        state: The text of the nested state, as in an index; None if the names say everything.
        metadata: Free text by key; None if there is no metadata.
        index: What an index would hold besides the sizes, such as a step's number and metrics.
    """

    patched: int = _VERSION
    check: _Digest = NO_DIGEST
    base: str
    patches: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MAX_PATCHES)]
    digest: _Digest
    state: str | None = None
    metadata: dict[str, str] | None = None
    index: dict[str, Any] = {}

    def __post_init__(self) -> None:
        names = (self.base, *self.patches)
        fault = next((name for name in names if not is_plain_name(name)), None)
        if fault is not None:
            raise ValueError(f"{fault!r} is not the name of a file")
        if len(set(names)) < len(names):
            raise ValueError("a file is named twice")


class _Version(msgspec.Struct, frozen=True):
    patched: int


def emit_document(document: PatchedDocument) -> bytes:
    """Encode the text, with its digest."""
    text = msgspec.json.encode(msgspec.structs.replace(document, check=NO_DIGEST))
    return text.replace(NO_DIGEST.encode(), digest_of(text).hex().encode(), 1)


def parse_document(text: bytes, path: str) -> PatchedDocument:
    """Read the text; the path is for messages."""
    try:
        version = msgspec.json.decode(text, type=_Version).patched
        document = msgspec.json.decode(text, type=PatchedDocument) if version == _VERSION else None
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise FormatError(
            "cannot read the description of the patched checkpoint", path=path, found=str(error)
        ) from None
    if document is not None:
        return _checked(document, text, path)
    raise UnsupportedError(
        "the checkpoint has a later version",
        path=path,
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep",
    )


def _checked(document: PatchedDocument, text: bytes, path: str) -> PatchedDocument:
    found = digest_of_text_with(document.check, text)
    if found != document.check:
        raise IntegrityError(
            "what the checkpoint is made of is not what was saved",
            path=path,
            expected=f"digest {document.check}",
            found=found,
        )
    return document
