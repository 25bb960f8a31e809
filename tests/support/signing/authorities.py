"""Certificate authorities for tests: each signs certificates with whatever is asked for in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tensorkeep.signing import PrivateKey

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
DAY = dt.timedelta(days=1)


def name_of(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


def usage(*names: str) -> x509.KeyUsage:
    every = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    every += ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: name in names for name in every})


class Holder:
    """A key with a certificate, of an authority or of somebody who signs.

    Attributes:
        name: Its common name.
        key: Its key.
        certificate: Its certificate.
        chain: Its certificate, then each authority's between it and the root.
    """

    def __init__(self, name: str, issuer: Holder | None = None, **members: Any) -> None:
        self.name = name
        self.key: Any = members.pop("key", None) or ec.generate_private_key(members.pop("curve", ec.SECP256R1()))
        self.certificate = _certificate(self, issuer or self, **members)
        self.chain: list[x509.Certificate] = [self.certificate, *(issuer.chain if issuer else [])]
        if issuer is None:
            self.chain = []

    @property
    def private(self) -> PrivateKey:
        return PrivateKey(self.key)

    def pem(self, path: Path) -> Path:
        """Write the certificate of an authority."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return path

    def chain_pem(self, path: Path) -> Path:
        """Write the certificate, then each authority's behind it, but for the root's."""
        path.write_bytes(b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.chain))
        return path


def _certificate(
    holder: Holder,
    issuer: Holder,
    *,
    authority: bool = False,
    path_length: int | None = None,
    usages: Sequence[str] | None = None,
    purposes: Sequence[x509.ObjectIdentifier] = (),
    names: Sequence[x509.GeneralName] = (),
    extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
    start: dt.datetime = NOW - DAY,
    stop: dt.datetime = NOW + DAY,
) -> x509.Certificate:
    if usages is None:
        usages = ["key_cert_sign"] if authority else ["digital_signature"]
    builder = x509.CertificateBuilder().subject_name(name_of(holder.name)).issuer_name(name_of(issuer.name))
    builder = builder.public_key(holder.key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(stop)
    builder = builder.add_extension(x509.BasicConstraints(authority, path_length), critical=True)
    if usages:
        builder = builder.add_extension(usage(*usages), critical=True)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer.key, hashes.SHA256())
