"""Keys: Ed25519, and ECDSA over the NIST curves, from and to PEM files.

No text of this module has a private key or a password in it, and a private key cannot be pickled.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

from tensorkeep.errors import (
    DestinationExistsError,
    FormatError,
    RefusedError,
    UnsupportedError,
    as_transport_error,
    importing,
)
from tensorkeep.limits import MAX_KEY_NBYTES
from tensorkeep.transport import refuse_url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

_Key = TypeVar("_Key")

KeyKind = Literal["ecdsa-p256", "ed25519"]
KEY_KINDS: Final[tuple[KeyKind, ...]] = ("ecdsa-p256", "ed25519")
"""Kinds of keys that can be generated; `model-signing` 1.1.1 knows only the first."""

_CURVES: Final = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""Name of each curve to the hash that signatures with it use, as in model-signing."""

_MAX_PASSWORD_NBYTES: Final = 1023
"""What OpenSSL takes."""

_is_locked = re.compile(rb"^-----BEGIN ENCRYPTED |^Proc-Type: *4, *ENCRYPTED", re.MULTILINE).search
_begins = re.compile(rb"^-----BEGIN ", re.MULTILINE).findall

_LOCAL: Final = "Keep keys in local files"
_NAME: Final = "Name it *.pem; the public key gets the same name with .pub"
_CERTIFICATE: Final = "Name an authority's certificate in a policy: authorities = [{ certificate = FILE }]"
_HOW_TO_UNLOCK: Final = "Give the password at the prompt, in a file or in an environment variable"


class PublicKey:
    """A key that checks signatures.

    Attributes:
        id: SHA-256 of its PEM text, 64 hexadecimal digits, by which signatures name the key.
        kind: The kind of key, such as `"ed25519"` or `"secp256r1"`.
    """

    def __init__(self, key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey) -> None:
        self._key = key
        self.kind = _kind_of(key)
        self.id = hashlib.sha256(self.pem()).hexdigest()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PublicKey:
        """Read a PEM file.

        Args:
            path: The file.

        Raises:
            SourceMissingError: If there is no such file.
            FormatError: If it has no public key, or has a private one.
            UnsupportedError: If the key is of another kind.
            MissingDependencyError: If `cryptography` is not installed.
        """
        return cls.of(key_text(os.fsdecode(path)), os.fsdecode(path))

    @classmethod
    def of(cls, pem: bytes, path: str = "a public key") -> PublicKey:
        """Parse PEM text.

        Args:
            pem: The text.
            path: Its file, for errors.

        Raises:
            FormatError: If it has no public key, or has a private one.
            UnsupportedError: If the key is of another kind.
            MissingDependencyError: If `cryptography` is not installed.
        """
        if b"PRIVATE KEY" in pem:
            raise FormatError(
                "a private key, where a public one belongs", path=path, hint="Use the .pub file beside it"
            )
        with importing(cryptography="'tensorkeep[trust]'"):
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import load_pem_public_key
        if b"BEGIN CERTIFICATE" in pem:
            raise FormatError("a certificate, where a public key belongs", path=path, hint=_CERTIFICATE)
        if (n_blocks := len(_begins(pem))) > 1:
            raise FormatError(
                "several keys in one file",
                path=path,
                expected="one public key",
                found=f"{n_blocks} parts of PEM",
                hint="Name each key's own file in a policy",
            )
        try:
            key = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise FormatError("not a public key", path=path, expected="PEM, as `tensorkeep keygen` writes") from None
        return _supported(cls, key, path)

    def pem(self) -> bytes:
        """Return the key as PEM text."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def has_signed(self, message: bytes, signature: bytes, *, hash_name: str | None = None) -> bool:
        """Say whether the private half of this key made a signature.

        Args:
            message: What should have been signed.
            signature: The signature.
            hash_name: The hash of an ECDSA signature, such as `"SHA256"`; by default, the usual one of the curve.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec

        with suppress(InvalidSignature):
            if isinstance(self._key, ec.EllipticCurvePublicKey):
                self._key.verify(signature, message, _ecdsa(hash_name or hash_of(self.kind)))
            else:
                self._key.verify(signature, message)
            return True
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PublicKey({self.kind}, {self.id[:16]}…)"

    def __reduce__(self) -> tuple[object, ...]:
        return PublicKey.of, (self.pem(),)


class PrivateKey:
    """A key that signs. Nothing shows it, and it cannot be pickled.

    Attributes:
        public: The key that checks its signatures.
    """

    __slots__ = ("_key", "public")

    def __init__(self, key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    @classmethod
    def generate(cls, kind: KeyKind = "ecdsa-p256") -> PrivateKey:
        """Make a new key.

        Args:
            kind: `"ecdsa-p256"`, which every verifier of model signatures knows, or `"ed25519"`.

        Raises:
            UnsupportedError: If there is no such kind.
            MissingDependencyError: If `cryptography` is not installed.
        """
        with importing(cryptography="'tensorkeep[trust]'"):
            from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        if kind not in KEY_KINDS:
            raise UnsupportedError("no such kind of key", expected=" or ".join(KEY_KINDS), found=repr(kind))
        return cls(
            ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str], password: str | bytes | None = None) -> PrivateKey:
        """Read a PEM file.

        Args:
            path: The file.
            password: Its password; None if it is not encrypted.

        Raises:
            SourceMissingError: If there is no file.
            FormatError: If it has no private key.
            RefusedError: If the password is missing or wrong.
            UnsupportedError: If the key is of another kind.
            MissingDependencyError: If `cryptography` is not installed.
        """
        pem, shown = key_text(os.fsdecode(path)), os.fsdecode(path)
        with importing(cryptography="'tensorkeep[trust]'"):
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        is_locked = _needs_password(pem)
        if is_locked and not password:
            raise RefusedError("the key is encrypted", path=shown, hint=_HOW_TO_UNLOCK)
        try:
            key = load_pem_private_key(pem, _bytes_of(password) if password and is_locked else None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            if b"PUBLIC KEY" in pem:
                raise FormatError(
                    "a public key, where a private one belongs",
                    path=shown,
                    hint="Sign with the private key beside it",
                ) from None
            if is_locked:
                raise RefusedError("the key's password is wrong, or the file is damaged", path=shown) from None
            raise FormatError(
                "not a private key", path=shown, expected="PEM, as `tensorkeep keygen` writes"
            ) from None
        return _supported(cls, key, shown)

    def write(self, path: str | os.PathLike[str], password: str | bytes | None = None) -> str:
        """Write the key, readable only by its owner, and beside it the public key in a file that ends in `.pub`.

        Args:
            path: The file of the private key; neither file may exist.
            password: Encrypts the private key: 1 to 1,023 bytes; with None, it is stored unencrypted.

        Returns:
            The path of the public key.

        Raises:
            DestinationExistsError: If one of the files exists.
            RefusedError: If the name ends with `.pub`, or the password is empty or too long.
            TransportError: If a file cannot be written.
        """
        from cryptography.hazmat.primitives import serialization as formats

        private = os.fsdecode(path)
        refuse_url(private, hint=_LOCAL)
        public = (private.removesuffix(".pem") if private.endswith(".pem") else private) + ".pub"
        if private.endswith(".pub"):
            raise RefusedError("a private key is not named like a public one", path=private, hint=_NAME)
        for existing in filter(os.path.lexists, (private, public)):
            raise DestinationExistsError(
                "this path already exists", path=existing, hint="Choose another: no key is replaced"
            )
        protection = (
            formats.NoEncryption()
            if password is None
            else formats.BestAvailableEncryption(_new_password(password, private))
        )
        pem = self._key.private_bytes(formats.Encoding.PEM, formats.PrivateFormat.PKCS8, protection)
        _write_new(private, pem, 0o600)
        _write_new(public, self.public.pem(), 0o644)
        return public

    def sign(self, message: bytes) -> bytes:
        """Return a signature.

        Args:
            message: What to sign.
        """
        from cryptography.hazmat.primitives.asymmetric import ec

        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            return self._key.sign(message, _ecdsa(hash_of(self.public.kind)))
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.kind}, {self.public.id[:16]}…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be pickled")


def is_encrypted(path: str | os.PathLike[str]) -> bool:
    """Say whether the file of a private key needs a password.

    Args:
        path: The file.

    Raises:
        SourceMissingError: If there is no such file.
    """
    return _needs_password(key_text(os.fsdecode(path)))


def _needs_password(pem: bytes) -> bool:
    return _is_locked(pem) is not None


def _new_password(password: str | bytes, path: str) -> bytes:
    """Return the bytes of a password; an empty one would protect nothing."""
    content = _bytes_of(password)
    if 0 < len(content) <= _MAX_PASSWORD_NBYTES:
        return content
    raise RefusedError(
        "the password is too long" if content else "the password is empty",
        path=path,
        expected=f"1 to {_MAX_PASSWORD_NBYTES:,} bytes",
        found=f"{len(content):,}",
        hint=None if content else "Give none to store the key unencrypted",
    )


def _supported(make: Callable[[Any], _Key], key: object, path: str) -> _Key:
    """Return a key of a kind that signs models; otherwise the error names its file."""
    try:
        return make(key)
    except UnsupportedError as error:
        raise error.with_fields(path=path) from None


def _kind_of(key: object) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if isinstance(key, ed25519.Ed25519PublicKey):
        return "ed25519"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return key.curve.name
    raise UnsupportedError(
        "keys of this kind are not used to sign models",
        expected=f"Ed25519, or ECDSA over {', '.join(_CURVES)}",
        found=_shown(key),
    )


def _shown(key: object) -> str:
    """Return the curve, or whatever else the key is, such as `RSA`."""
    from cryptography.hazmat.primitives.asymmetric import ec

    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA over {key.curve.name}"
    return type(key).__name__.strip("_").removesuffix("PublicKey")


def hash_of(curve: str) -> str:
    """Return the name of the hash that signatures with a curve use."""
    return _CURVES[curve]


def _ecdsa(hash_name: str) -> ec.ECDSA:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.ECDSA(getattr(hashes, hash_name)())


def _bytes_of(password: str | bytes) -> bytes:
    return password.encode() if isinstance(password, str) else password


def key_text(path: str) -> bytes:
    """Read a small local file."""
    refuse_url(path, hint=_LOCAL)
    with as_transport_error("could not read the key", path), open(path, "rb") as file:
        text = file.read(MAX_KEY_NBYTES + 1)
    if len(text) > MAX_KEY_NBYTES:
        raise FormatError("not a key", path=path, expected=f"at most {MAX_KEY_NBYTES:,} bytes")
    return text


def _write_new(path: str, text: bytes, mode: int) -> None:
    with as_transport_error("could not write the key", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
