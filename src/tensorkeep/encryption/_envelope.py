"""The text with what is public about an encrypted file or index, and its encrypted content. Pure.

    {"version":1,"key":"…","salt":"…","nbytes":40,"names":{…},"content":"…"}

All text before `,"content":"` is authenticated with the content. docs/encryption.md specifies it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Final, NoReturn

import msgspec

from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError

_VERSION: Final = 1
_MARK: Final = ',"content":"'
_END: Final = '"}'


class _Version(msgspec.Struct, frozen=True):
    version: int


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is public.

    Attributes:
        key: Id of the key.
        salt: In base64.
        nbytes: Bytes of the plain data of a file; 0 in an index.
        names: What is shown of names, as JSON; empty if they are hidden.
        version: Of this text.
    """

    version: int
    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$", max_length=32)]
    salt: Annotated[str, msgspec.Meta(pattern="^[0-9A-Za-z+/]{43}=$", max_length=44)]
    nbytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    names: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)

    @classmethod
    def of(cls, key: str, salt: bytes, nbytes: int, names: bytes = b"") -> Envelope:
        """Return the envelope of a new file or index."""
        return cls(_VERSION, key, b64encode(salt).decode(), nbytes, msgspec.Raw(names))

    @property
    def salt_bytes(self) -> bytes:
        """The salt."""
        return b64decode(self.salt)

    def public(self) -> bytes:
        """Return the text before the content."""
        names = b"" if not bytes(self.names) else b',"names":' + bytes(self.names)
        head = f'{{"version":{self.version},"key":"{self.key}","salt":"{self.salt}","nbytes":{self.nbytes}'
        return head.encode() + names


class Sealed(msgspec.Struct, frozen=True):
    """A whole text: what is public, as it was read, and the encrypted content."""

    envelope: Envelope
    public: bytes
    content: bytes


def emit(envelope: Envelope, content: bytes) -> str:
    """Encode a whole text."""
    return f"{envelope.public().decode()}{_MARK}{b64encode(content).decode()}{_END}"


def parse(text: str, path: str) -> Sealed:
    """Decode a whole text, of anybody."""
    public, mark, rest = text.rpartition(_MARK)
    try:
        whole = public.encode() + b"}"
        _check_version(msgspec.json.decode(whole, type=_Version).version, path)
        envelope = msgspec.json.decode(whole, type=Envelope)
        content, _, end = rest.rpartition(_END)
        if end or not mark:
            return _refuse("no content", path)
        return Sealed(envelope, public.encode(), b64decode(content, validate=True))
    except TensorkeepError:
        raise
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        _refuse(str(error), path)


def _check_version(version: int, path: str) -> None:
    if version != _VERSION:
        raise UnsupportedError(
            "this is encrypted in a later version of the format",
            path=path,
            expected=f"version {_VERSION}",
            found=f"version {version}",
            hint="Update tensorkeep",
        )


def _refuse(found: str, path: str) -> NoReturn:
    raise FormatError("the description of the encryption is damaged", path=path, found=found) from None
