"""The description of a patch, as JSON in the metadata of its file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import FormatError, HeaderError, UnsupportedError
from tensorkeep.limits import MAX_LISTED_NDIM

PATCH_KEY: Final = "tensorkeep.patch"
"""The metadata key."""

_VERSION: Final = 1

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Content(msgspec.Struct, frozen=True, array_like=True):
    """What a tensor is: equal tensors have equal contents.

    Attributes:
        dtype: Its name in the format.
        shape: Elements along each dimension.
        digest: BLAKE3 of its bytes, as hexadecimal digits.
    """

    dtype: str
    shape: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_LISTED_NDIM)]
    digest: _Digest


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a tensor changes, and which tensors of the patch hold the change.

    Attributes:
        old: What it was; None if it is new.
        new: What it becomes; None if it is removed.
        delta: The tensor of differences, where dtype and shape stay.
        old_whole: The old tensor itself, where they do not; None if the patch does not hold it.
        new_whole: The new one.
    """

    old: Content | None = None
    new: Content | None = None
    delta: str | None = None
    old_whole: str | None = None
    new_whole: str | None = None

    def __post_init__(self) -> None:
        if self.old is None and self.new is None:
            raise ValueError("a tensor that is in neither checkpoint")

    @property
    def reversed(self) -> Change:
        """The way back."""
        return Change(self.new, self.old, self.delta, self.new_whole, self.old_whole)


class Texts(msgspec.Struct, frozen=True):
    """What a checkpoint has beside its tensors.

    Attributes:
        metadata: Free text by key; None for none at all.
        state: What it says of its nested state, as text; None for nothing.
        names: The names of its tensors in order.
        files: Name of each stored tensor, or piece of one, to its file, as in the index; None for a single file.
        splits: Names of the pieces of each tensor that is cut.
    """

    metadata: dict[str, str] | None = None
    state: str | None = None
    names: list[str] | None = None
    files: dict[str, str] | None = None
    splits: dict[str, tuple[str, ...]] = {}


class End(msgspec.Struct, frozen=True):
    """One of the two checkpoints between which a patch leads.

    Attributes:
        digest: BLAKE3 of what its tensors are, as hexadecimal digits; see `digest_of_contents`.
        texts: What it has beside its tensors; None if both ends have the same.
    """

    digest: _Digest
    texts: Texts | None = None


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch leads from and to, and how each tensor changes.

    Attributes:
        patch: Version of the description.
        old: The checkpoint that the patch is for.
        new: The checkpoint that the patch makes.
        tensors: Name to change, for tensors that change.
        equal: Names of tensors that do not change, but are equal to one that does, before or after the change. A
            model in which they are tied to it cannot be patched.
    """

    patch: int = _VERSION
    old: End
    new: End
    tensors: dict[str, Change]
    equal: tuple[str, ...] = ()

    @property
    def reversed(self) -> Description:
        """The way back."""
        tensors = {name: change.reversed for name, change in self.tensors.items()}
        return Description(old=self.new, new=self.old, tensors=tensors, equal=self.equal)

    @property
    def is_reversible(self) -> bool:
        """Whether the patch holds all of the old checkpoint that is not in the new one."""
        return all(change.delta or change.old_whole or change.old is None for change in self.tensors.values())


class _Version(msgspec.Struct, frozen=True):
    patch: int


def emit_description(description: Description) -> str:
    """Encode the description of a patch."""
    return msgspec.json.encode(description).decode()


def parse_description(metadata: Mapping[str, str]) -> Description:
    """Read the description of a patch from the metadata of its file."""
    text = metadata.get(PATCH_KEY)
    if text is None:
        raise FormatError("this is not a patch", expected=f"metadata with the key {PATCH_KEY!r}")
    try:
        version = msgspec.json.decode(text, type=_Version).patch
        if version == _VERSION:
            return msgspec.json.decode(text, type=Description)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise FormatError("cannot read the description of the patch", found=str(error)) from None
    raise UnsupportedError(
        "the patch has a later version",
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep",
    )


def digest_of_contents(contents: Mapping[str, Content]) -> str:
    """Return the digest of a checkpoint's tensors, whatever their order and files.

    It is the BLAKE3 of a line for each tensor, in the order of their names as UTF-8: the JSON array of name, dtype,
    shape and digest, without spaces, and a line feed.
    """
    fault = next((name for name in contents if not name.isascii() and _is_no_text(name)), None)
    if fault is not None:
        raise HeaderError("a tensor has a name that cannot be stored in a file", tensor=fault, found=repr(fault))
    lines = (
        msgspec.json.encode([name, content.dtype, content.shape, content.digest]) + b"\n"
        for name, content in sorted(contents.items(), key=lambda item: item[0].encode())
    )
    return digest_of(b"".join(lines)).hex()


def _is_no_text(name: str) -> bool:
    """Whether a name has half of a surrogate pair, which UTF-8 lacks."""
    return any("\ud800" <= character <= "\udfff" for character in name)
