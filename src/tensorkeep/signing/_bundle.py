"""The file of a signature: a sigstore bundle, version 0.3, with a DSSE envelope. Pure.

    {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
     "verificationMaterial": {"publicKey": {"hint": "<SHA-256 of the public key>"}, "tlogEntries": []},
     "dsseEnvelope": {"payload": "<base64>", "payloadType": "application/vnd.in-toto+json",
                      "signatures": [{"sig": "<base64>", "keyid": ""}]}}

The payload is signed together with its type, so neither can be changed. Nothing else in the file is trusted: the hint
only says which key to try. A bundle with one certificate instead of a hint was signed by an identity, and
`trust/_keyless.py` checks it. One with a chain of certificates was signed with a key that an authority certified, and
`trust/_authorities.py` checks it:

    "verificationMaterial": {"x509CertificateChain": {"certificates": [{"rawBytes": "<base64 of DER>"}, …]}, …}
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MAX_BUNDLE_NODES, MAX_CERTIFICATES, MAX_SIGNATURE_NBYTES, MAX_SIGNATURE_NODES

MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


class Bundle(msgspec.Struct, frozen=True):
    """A signature that was parsed; nothing in it is proven yet.

    Attributes:
        text: The whole file.
        payload: The signed bytes.
        signature: The signature.
        hint: Id of the key that made it, 64 hexadecimal digits; None if the bundle names none.
        is_by_identity: Whether it has an identity's certificate, and was not made with a key that lasts.
        certificates: The key's certificate, then each authority's, as DER; empty without certificates.
    """

    text: bytes
    payload: bytes
    signature: bytes
    hint: str | None
    is_by_identity: bool
    certificates: tuple[bytes, ...] = ()


class _Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sig: str
    keyid: str | None = None


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...]


class _PublicKey(msgspec.Struct, frozen=True):
    hint: str | None = None


class _Certificate(msgspec.Struct, frozen=True, rename="camel"):
    raw_bytes: str


class _Chain(msgspec.Struct, frozen=True):
    certificates: Annotated[tuple[_Certificate, ...], msgspec.Meta(min_length=1, max_length=MAX_CERTIFICATES)]


class _Material(msgspec.Struct, frozen=True, rename="camel"):
    public_key: _PublicKey | None = None
    certificate: Any = None
    x509_certificate_chain: _Chain | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope


def signed_bytes(payload: bytes) -> bytes:
    """Return what a signature of a payload signs: the payload with its type, both with their lengths (DSSE, PAE)."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def early_signed_bytes(payload: bytes) -> bytes:
    """Return what model-signing 0.2 signed instead: the payload as Python shows it, so each has a text of its own."""
    return b"DSSEV1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), repr(payload).encode())


def emit_bundle(payload: bytes, signature: bytes, hint: str, certificates: Sequence[bytes] = ()) -> bytes:
    """Return the text of a bundle: with the certificates if there are any, else with the key's id."""
    chain = {"certificates": [{"rawBytes": b64encode(der).decode()} for der in certificates]}
    material = {"x509CertificateChain": chain} if certificates else {"publicKey": {"hint": hint}}
    document = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {**material, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": b64encode(signature).decode(), "keyid": ""}],
        },
    }
    text = json.dumps(document).encode() + b"\n"
    _check_size(text)
    return text


def parse_bundle(text: bytes, path: str) -> Bundle:
    """Parse the text of a bundle; equal keys are refused, since two readers could see different ones."""
    _check_size(text, path)
    try:
        document = msgspec.convert(strict_json(text, max_nodes=MAX_BUNDLE_NODES), _Document)
        envelope, material = document.dsse_envelope, document.verification_material
        if document.media_type != MEDIA_TYPE:
            _refuse(path, MEDIA_TYPE, repr(document.media_type))
        if envelope.payload_type != PAYLOAD_TYPE:
            _refuse(path, f"a payload of type {PAYLOAD_TYPE}", repr(envelope.payload_type))
        if len(envelope.signatures) != 1:
            _refuse(path, "exactly one signature in the envelope", str(len(envelope.signatures)))
        payload, signature = _bytes_of(envelope.payload), _bytes_of(envelope.signatures[0].sig)
        chain = material.x509_certificate_chain
        certificates = tuple(_bytes_of(each.raw_bytes) for each in chain.certificates) if chain else ()
    except (FormatError, LimitError) as error:
        raise error.with_fields(path=path) from None
    except (ValueError, RecursionError) as error:  # of JSON, base64, UTF-8 and msgspec
        _refuse(path, "a sigstore bundle, version 0.3, as JSON", str(error))
    key = material.public_key
    if sum(each is not None for each in (key, material.certificate, chain)) != 1:
        _refuse(path, "a key's id or a certificate", "both or neither")
    hint = (key.hint if key else None) or None
    if envelope.signatures[0].keyid not in {None, "", hint}:
        _refuse(path, f"the key id {hint}", repr(envelope.signatures[0].keyid))
    return Bundle(text, payload, signature, hint, material.certificate is not None, certificates)


def strict_json(text: bytes, *, max_nodes: int = MAX_SIGNATURE_NODES) -> Any:
    """Decode JSON of at most about so many values; equal keys, NaN and infinity are errors."""
    if (n_values := sum(map(text.count, (b"[", b"{", b",")))) > max_nodes:
        raise LimitError("the JSON has too many values", expected=f"at most {max_nodes:,}", found=f"{n_values:,}")
    return _decode(text.decode())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("the signature's JSON has a duplicate key")
    return found


def _no_number(text: str) -> NoReturn:
    raise FormatError("the signature has a number that is not valid JSON", found=text)


_decode = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_number, parse_int=lambda text: int(text[:20])
).decode
"""Integers are cut to this length: one may have a million digits, but the ones that matter have at most 19."""


def _bytes_of(text: str) -> bytes:
    """Decode base64 in its one canonical form."""
    data = b64decode(text.encode(), validate=True)
    if b64encode(data) != text.encode():
        raise FormatError("the signature contains base64 that is not canonical")
    return data


def _check_size(text: bytes, path: str | None = None) -> None:
    if len(text) > MAX_SIGNATURE_NBYTES:
        raise LimitError(
            "the signature is too large",
            path=path,
            expected=f"at most {MAX_SIGNATURE_NBYTES:,} bytes",
            found=f"{len(text):,}",
        )


def _refuse(path: str, expected: str, found: str) -> NoReturn:
    raise FormatError("not a signature of a model", path=path, expected=expected, found=found)
