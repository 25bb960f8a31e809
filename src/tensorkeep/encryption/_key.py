"""A key of 256 bits. Its bytes are in no message, no repr, no pickle and no argument of a program."""

from __future__ import annotations

import os
import shlex
import subprocess
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EEXIST
from typing import Any, Final

from tensorkeep.errors import DestinationExistsError, EncryptedError, UnsupportedError, as_transport_error, importing
from tensorkeep.transport import local_path

KEY_NBYTES: Final = 32
_ID_NBYTES: Final = 16
_LABEL: Final = b"tensorkeep encryption 1 "
_FORMS: Final = f"{KEY_NBYTES} bytes: as 64 hexadecimal digits, or in base64"
_LOCAL: Final = "Key.from_command runs a program that gets a key from elsewhere"
_MAX_NBYTES: Final = 1024
"""Bytes of a key as text, with room for whitespace."""


class Key:
    """A key of 256 bits for AES-GCM, to encrypt checkpoints with and to open them.

    Its bytes appear in no message and no `repr`. A key from a file, an environment variable or a command can be
    pickled, which stores only where the key comes from; a key made of bytes cannot.

    Args:
        secret: 32 random bytes, not a passphrase.

    Raises:
        TypeError: If the secret is not bytes.
        UnsupportedError: If it does not have 32 bytes.

    Examples:
        >>> tensorkeep.Key(bytes(32))
        Key(id='b33551a2808d6593…')
    """

    __slots__ = ("_id", "_origin", "_secret")

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes | bytearray):
            raise TypeError(f"a key must be bytes, not {type(secret).__name__}; Key.from_file(path) reads one")
        if len(secret) != KEY_NBYTES:
            raise _no_key("this", len(secret))
        self._secret = bytes(secret)
        self._origin: tuple[Any, ...] | None = None
        self._id: str | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Key:
        """Read a key from a file, as `tensorkeep keygen KEY --kind aes-256` writes it.

        Args:
            path: A file with 64 hexadecimal digits, 32 bytes in base64, or 32 bytes.

        Raises:
            TypeError: If bytes are given: `Key(secret)` makes a key of them.
            UnsupportedError: If the file holds something else.
            TransportError: If it cannot be read.
        """
        if isinstance(path, bytes | bytearray):  # a message about a path would show it
            raise TypeError("a key must be a `Key` or the path of a file; `Key(secret)` makes one of 32 bytes")
        path = local_path(path, hint=_LOCAL)
        if not os.path.exists(path):
            _refuse_key_itself(path, "the path of a file with a key")
        with as_transport_error("could not read the key", path), open(path, "rb") as file:
            return cls._read(file.read(_MAX_NBYTES + 1), f"the key in {path}", ("file", os.path.abspath(path)))

    @classmethod
    def from_env(cls, name: str = "TENSORKEEP_KEY") -> Key:
        """Read a key from an environment variable.

        Args:
            name: The variable, with 64 hexadecimal digits or 32 bytes in base64.

        Raises:
            EncryptedError: If it is not set.
            UnsupportedError: If it holds something else.
        """
        if name not in os.environ:
            _refuse_key_itself(name, "the name of a variable with a key")
            raise EncryptedError(f"the environment variable {name} is not set", expected="a key")
        return cls._read(
            os.environ[name].encode(errors="replace"), f"the key in the environment variable {name}", ("env", name)
        )

    @classmethod
    def from_command(cls, command: str | Sequence[str]) -> Key:
        """Run a program that prints a key, such as one that asks a vault.

        Args:
            command: The program and its arguments, as a list or as a shell would read them; no shell is used.

        Raises:
            EncryptedError: If the program cannot be started or fails.
            UnsupportedError: If it prints anything but a key, or the command cannot be parsed.
        """
        words = _words_of(command)
        program = repr(words[0]) if words else "an empty command"
        if words:
            _refuse_key_itself(words[0], "a program that prints a key")
        return cls._read(_printed_by(words, program), f"the key that {program} prints", ("command", tuple(words)))

    @classmethod
    def of(cls, value: Key | str | os.PathLike[str]) -> Key:
        """Return a key, or read it from the file that a path names."""
        return value if isinstance(value, Key) else cls.from_file(value)

    @classmethod
    def _read(cls, content: bytes, what: str, origin: tuple[Any, ...]) -> Key:
        secret, nbytes = _decoded(content), len(content)
        if secret is None:
            del content  # nor does a traceback that shows variables show what is nearly a key
            raise _no_key(what, nbytes)
        key = cls(secret)
        key._origin = origin
        return key

    @property
    def id(self) -> str:
        """32 hexadecimal digits by which files name their key; they say nothing about its bytes."""
        if self._id is None:
            self._id = self.derived(None, b"id", _ID_NBYTES).hex()
        return self._id

    def derived(self, salt: bytes | None, info: bytes, nbytes: int = KEY_NBYTES) -> bytes:
        """Return a key for one purpose, by HKDF-SHA256; the key itself leaves this object in no other way."""
        with importing(cryptography="'tensorkeep[trust]'"):
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), nbytes, salt, _LABEL + info).derive(self._secret)

    def __repr__(self) -> str:
        return f"Key(id='{self.id[:16]}…')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is None:
            raise UnsupportedError(
                "a key made of bytes cannot be pickled",
                hint="Use Key.from_file, .from_env or .from_command: these pickle only where the key comes from",
            )
        return _again, self._origin


def new_key(path: str | os.PathLike[str]) -> Key:
    """Write a new random key to a file that only its owner can read."""
    path = local_path(path, hint=_LOCAL)
    text = os.urandom(KEY_NBYTES).hex() + "\n"
    if os.path.lexists(path):
        raise DestinationExistsError(
            "this path already exists", path=path, hint="Choose another: no key is replaced"
        ).numbered(EEXIST)
    with as_transport_error("could not write the key", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    return Key.from_file(path)


def _words_of(command: str | Sequence[str]) -> list[str]:
    try:
        return shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise UnsupportedError("the command for the key cannot be parsed", found=str(error)) from None


def _printed_by(words: Sequence[str], program: str) -> bytes:
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE) as run:  # noqa: S603 - the user's own program
            output = run.communicate()[0]
    except (OSError, ValueError, IndexError) as error:
        raise EncryptedError(f"could not run {program} for the key", found=str(error)) from None
    if run.returncode:
        del output
        raise EncryptedError(f"{program} gave no key", found=f"exit status {run.returncode}")
    return output


def _again(kind: str, origin: Any) -> Key:
    makers: Mapping[str, Any] = {"file": Key.from_file, "env": Key.from_env, "command": Key.from_command}
    key: Key = makers[kind](origin)
    return key


def _refuse_key_itself(text: str | os.PathLike[str], needed: str) -> None:
    """Refuse a key where its location is needed, without showing it."""
    if len(os.fspath(text)) != KEY_NBYTES and _decoded(os.fsencode(text)) is not None:
        raise UnsupportedError(
            f"this is a key itself, where {needed} is needed",
            hint="Replace this key: others can see arguments and code",
        )


def may_be_key(content: bytes) -> bool:
    """Say whether a file with this content is a key: one that `Key.from_file` reads, unless it is readable text."""
    is_text = len(content) == KEY_NBYTES and content.decode("ascii", "replace").isprintable() and content.isascii()
    return len(content) <= _MAX_NBYTES and not is_text and _decoded(content) is not None


def _decoded(content: bytes) -> bytes | None:
    """Return the bytes of a key; None if it is something else."""
    if len(content) == KEY_NBYTES:
        return content
    with suppress(ValueError):
        text = content.strip().decode("ascii")
        secret = bytes.fromhex(text) if len(text) == 2 * KEY_NBYTES else b64decode(text, validate=True)
        return secret if len(secret) == KEY_NBYTES else None
    return None


def _no_key(what: str, nbytes: int) -> UnsupportedError:
    return UnsupportedError(
        f"{what} is not a key",
        expected=_FORMS,
        found=f"{nbytes:,} bytes" if nbytes <= _MAX_NBYTES else f"more than {_MAX_NBYTES:,} bytes",
        hint="`tensorkeep keygen KEY --kind aes-256` writes one",
    )
