"""`HardwareKey`: a private key that never leaves its hardware, which signs through a module of PKCS #11."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from tensorkeep.errors import IntegrityError, RefusedError, SourceMissingError, TransportError, importing
from tensorkeep.signing._key_uri import KeyUri, parse_key_uri
from tensorkeep.signing._keys import PublicKey, hash_of, key_text

if TYPE_CHECKING:
    from pkcs11 import Session, Token

_CURVES: Final = {
    bytes.fromhex("06082a8648ce3d030107"): ("SECP256R1", 65),
    bytes.fromhex("06052b81040022"): ("SECP384R1", 97),
    bytes.fromhex("06052b81040023"): ("SECP521R1", 133),
    bytes.fromhex("06032b6570"): ("Ed25519", 32),
    b"\x13\x0cedwards25519": ("Ed25519", 32),
}
"""Parameters of each curve as a token writes them, to its name and the bytes of a point."""

_PIN: Final = "Give the PIN at the prompt, in a file or in an environment variable"


class HardwareKey:
    """A key in a hardware security module, smart card or security token, until it is closed. It cannot be pickled.

    Attributes:
        public: The key that checks its signatures.
    """

    __slots__ = ("_key", "_pin", "_session", "_uri", "public")

    def __init__(self, uri: KeyUri, session: Session, pin: str | None) -> None:
        from pkcs11 import Attribute, ObjectClass

        self._uri, self._session = uri, session
        self._key = _only(uri, session, ObjectClass.PRIVATE_KEY, uri.key_id, uri.attributes.get("object"))
        self._pin = pin if self._key[Attribute.ALWAYS_AUTHENTICATE] else None
        pair = _only(uri, session, ObjectClass.PUBLIC_KEY, self._key[Attribute.ID], None)
        self.public = _public_key(uri, pair[Attribute.EC_PARAMS], pair[Attribute.EC_POINT])

    @classmethod
    def open(cls, uri: str, pin: str | Callable[[], str | None] | None = None) -> HardwareKey:
        """Log in to the hardware, and find a key.

        The module that the URI names is a library that runs in this process, as any program with the user's rights.

        Args:
            uri: Where the key is, as RFC 7512 defines: its `token`, `object` or `id`, and the `module-path` of the
                library that reaches it.
            pin: The PIN, or a function that asks for it, called if the token needs one and the URI names no file with
                it as `pin-source`.

        Raises:
            FormatError: If this is not the URI of a private key.
            RefusedError: If the PIN is missing or wrong, or is part of the URI.
            UnsupportedError: If the URI has other attributes, or the key is of another kind.
            SourceMissingError: If there is no such module, token or key.
            MissingDependencyError: If `python-pkcs11` or `cryptography` is not installed.
            TransportError: If the hardware fails.
        """
        parsed = parse_key_uri(uri)
        with importing(pkcs11="'tensorkeep[pkcs11]'", cryptography="'tensorkeep[pkcs11]'"):
            import cryptography  # noqa: F401
            import pkcs11
        given = pin if isinstance(pin, str) else None
        if given is None and parsed.pin_file is not None:
            given = key_text(parsed.pin_file).decode(errors="replace").rstrip("\r\n")
        with _as_ours(parsed):
            token = _token(parsed, pkcs11.lib(parsed.module).get_tokens())
            if given is None and pkcs11.TokenFlag.LOGIN_REQUIRED in token.flags:
                given = pin() if callable(pin) else None
                if not given:
                    raise RefusedError("the token needs a PIN", path=str(parsed), hint=_PIN)
            session = _session(token, given)
            try:
                return cls(parsed, session, given)
            except BaseException:
                session.close()
                raise

    def sign(self, message: bytes) -> bytes:
        """Return a signature.

        Args:
            message: What to sign.

        Raises:
            IntegrityError: If the signature is not by the public key that the token names.
            TransportError: If the hardware fails.
        """
        import hashlib

        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from pkcs11 import Mechanism

        with _as_ours(self._uri):
            if self.public.kind == "ed25519":
                signature: bytes = self._key.sign(message, mechanism=Mechanism.EDDSA, pin=self._pin)
            else:
                digest = hashlib.new(hash_of(self.public.kind), message).digest()
                pair = self._key.sign(digest, mechanism=Mechanism.ECDSA, pin=self._pin)
                half = len(pair) // 2
                signature = encode_dss_signature(int.from_bytes(pair[:half]), int.from_bytes(pair[half:]))
        if not self.public.has_signed(message, signature):
            raise IntegrityError("the signature is not by the token's public key", path=str(self._uri))
        return signature

    def close(self) -> None:
        """Log out."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"HardwareKey({self.public.kind}, {self.public.id[:16]}…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be pickled")


def _token(uri: KeyUri, tokens: Iterator[Token]) -> Token:
    """Return the one token that a URI is about."""
    wanted = uri.attributes
    found = [token for token in tokens if all(wanted.get(name, text) == text for name, text in _names(token))]
    if len(found) != 1:
        raise SourceMissingError(
            "no such token" if not found else "several such tokens",
            path=str(uri),
            hint="Name its `token` or `serial`; `pkcs11-tool --list-slots` shows them",
        )
    return found[0]


def _session(token: Token, pin: str | None) -> Session:
    """Log in, once for all open keys of a token."""
    from pkcs11.exceptions import UserAlreadyLoggedIn

    try:
        return token.open(user_pin=pin)
    except UserAlreadyLoggedIn:
        return token.open()


def _names(token: Token) -> list[tuple[str, str]]:
    return [
        ("token", token.label),
        ("serial", token.serial.decode(errors="replace").rstrip()),
        ("manufacturer", token.manufacturer_id),
        ("model", token.model),
        ("slot-id", str(token.slot.slot_id)),
    ]


def _only(uri: KeyUri, session: Session, kind: Any, key_id: bytes | None, label: str | None) -> Any:
    """Return the one key of a class with this id and label."""
    from pkcs11 import Attribute

    wanted = {Attribute.CLASS: kind, Attribute.ID: key_id, Attribute.LABEL: label}
    found = list(session.get_objects({name: value for name, value in wanted.items() if value is not None}))
    if len(found) != 1:
        what = kind.name.replace("_", " ").lower()
        raise SourceMissingError(
            f"no such {what} in the token" if not found else f"several {what}s of this name in the token",
            path=str(uri),
            hint="`pkcs11-tool --list-objects` shows them",
        )
    return found[0]


def _public_key(uri: KeyUri, curve: bytes, point: bytes) -> PublicKey:
    """Return the public key of a point, which some tokens wrap once more."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    name, n_bytes = _CURVES.get(bytes(curve), ("", 0))
    point = bytes(point)[-n_bytes:]
    try:
        if name == "Ed25519":
            return PublicKey(ed25519.Ed25519PublicKey.from_public_bytes(point))
        return PublicKey(ec.EllipticCurvePublicKey.from_encoded_point(getattr(ec, name)(), point))
    except (ValueError, AttributeError):
        raise TransportError("the token's public key is of another kind, or malformed", path=str(uri)) from None


@contextmanager
def _as_ours(uri: KeyUri) -> Iterator[None]:
    """Turn errors of the module into ours."""
    from pkcs11 import exceptions as faults

    try:
        yield
    except (faults.PinIncorrect, faults.PinInvalid, faults.PinLenRange):
        raise RefusedError(
            "the PIN is wrong", path=str(uri), hint="After a few wrong ones, the token locks itself"
        ) from None
    except (faults.PinLocked, faults.PinExpired) as error:
        raise RefusedError("the token is locked", path=str(uri), found=type(error).__name__) from None
    except faults.PKCS11Error as error:
        raise TransportError(
            "the hardware failed", path=str(uri), found=f"{type(error).__name__} {error}".strip()
        ) from None
