"""What a directory of a checkpoint and its patches says of itself. Pure.

{"patched":1,"base":"base","patches":["1.patch.safetensors","2.patch.safetensors"],"digest":"<64 digits>",
"state":null,"metadata":null,"index":{"tensorkeep_store":{"step":120}}}
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.limits import MAX_PATCHES
from tensorkeep.paths import is_plain_name

DOCUMENT_NAME: Final = "patched.json"
"""The name of the file; it is written last."""

_VERSION: Final = 1


class PatchedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is another one, seen through patches.

    Attributes:
        patched: Version of this text.
        base: The directory of the other one, beside this file.
        patches: The patches beside this file, in their order.
        digest: BLAKE3 of what the stored tensors are; see `digest_of_contents`.
        state: The text of the nested state, as in an index; None if the names say everything.
        metadata: Free text by key; None for none at all.
        index: What an index would have beside the sizes, such as a step's number and metrics.
    """

    patched: int = _VERSION
    base: str
    patches: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_PATCHES)]
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
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
    """Encode the text."""
    return msgspec.json.encode(document)


def parse_document(text: bytes, path: str) -> PatchedDocument:
    """Read the text; the path is for messages."""
    try:
        version = msgspec.json.decode(text, type=_Version).patched
        if version == _VERSION:
            return msgspec.json.decode(text, type=PatchedDocument)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise FormatError("cannot read what the checkpoint is made of", path=path, found=str(error)) from None
    raise UnsupportedError(
        "the checkpoint has a later version",
        path=path,
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep",
    )
