"""Certificates: what an authority says about the owner of a key.

Chains of certificates are checked in `trust/_authorities.py`; nothing here is proven.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tensorkeep.errors import FormatError, LimitError, RefusedError, UnsupportedError, importing
from tensorkeep.limits import MAX_CERTIFICATES
from tensorkeep.signing._bundle import Bundle
from tensorkeep.signing._keys import PublicKey, key_text

if TYPE_CHECKING:
    from cryptography import x509


def read_certificates(path: str | os.PathLike[str]) -> tuple[x509.Certificate, ...]:
    """Read a PEM file of one or more certificates."""
    shown = os.fsdecode(path)
    text = key_text(shown)
    with importing(cryptography="'tensorkeep[trust]'"):
        from cryptography import x509
    try:
        found = tuple(x509.load_pem_x509_certificates(text))
    except (ValueError, x509.InvalidVersion):
        raise FormatError("not a certificate", path=shown, expected="PEM, with BEGIN CERTIFICATE") from None
    return found


def chain_of(path: str | os.PathLike[str], key: PublicKey) -> tuple[bytes, ...]:
    """Read the certificate of a key, and each authority's behind it, as DER."""
    from cryptography.hazmat.primitives.serialization import Encoding

    shown = os.fsdecode(path)
    found = read_certificates(shown)
    if len(found) > MAX_CERTIFICATES:
        raise LimitError(
            "too many certificates", path=shown, expected=f"at most {MAX_CERTIFICATES}", found=str(len(found))
        )
    if certified_key(found[0], shown) != key:
        raise RefusedError(
            "the first certificate is for another key",
            path=shown,
            expected=f"the certificate of {key}",
            found=found[0].subject.rfc4514_string(),
        )
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in found)


def key_id_of(bundle: Bundle, path: str) -> str | None:
    """Return the id of the key that a bundle names or has a certificate of; None for others."""
    if not bundle.certificates:
        return bundle.hint
    return certified_key(parse_certificate(bundle.certificates[0], path), path).id


def parse_certificate(der: bytes, path: str) -> x509.Certificate:
    """Parse a certificate of a signature."""
    with importing(cryptography="'tensorkeep[trust]'"):
        from cryptography import x509
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion):
        raise FormatError("the signature has a malformed certificate", path=path) from None


def certified_key(certificate: x509.Certificate, path: str) -> PublicKey:
    """Return the key of a certificate; an error unless the certificate is for signatures."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        extensions = {type(extension.value): extension.value for extension in certificate.extensions}
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise FormatError("malformed certificate", path=path) from None
    usage, purposes = extensions.get(x509.KeyUsage), extensions.get(x509.ExtendedKeyUsage)
    signs = isinstance(usage, x509.KeyUsage) and usage.digital_signature
    signs_code = isinstance(purposes, x509.ExtendedKeyUsage) and ExtendedKeyUsageOID.CODE_SIGNING in purposes
    is_free = isinstance(purposes, x509.ExtendedKeyUsage) and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in purposes
    if not (signs if purposes is None or is_free else signs_code and (signs or usage is None)):
        raise UnsupportedError(
            "the certificate is not for signatures",
            path=path,
            expected="the usage digitalSignature, and codeSigning if it names purposes",
            found=f"a certificate of {certificate.subject.rfc4514_string() or 'nobody'} for another use",
        )
    return PublicKey(key)  # type: ignore[arg-type]
