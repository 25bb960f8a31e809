"""Authorities: signatures count if their certificates lead to a certificate that a policy names.

The `cryptography` package builds and checks the chain: signatures, dates, path lengths and name constraints. Here is
added what certificates must be for. No revocation list is read, since nothing here uses a network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.errors import FormatError, TrustError
from tensorkeep.signing import Bundle, certified_key, is_signed_by, parse_certificate, read_certificates
from tensorkeep.texts import listed
from tensorkeep.trust._patterns import is_like

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.x509.verification import ExtensionPolicy, Policy

_MAX_DEPTH: Final = 3
"""Authorities between a key and the authority that a policy names."""


class Authority(msgspec.Struct, frozen=True):
    """A certificate authority: all whom it certifies can sign.

    Attributes:
        pem: Its certificate, as PEM; several are alternatives.
        subject: A pattern that a name in the signer's certificate must match: its common name, its subject as in
            RFC 4514 (`CN=release,O=Example`), or an alternative name (an email address, a URL, a host). None for
            all whom the authority certifies.
        expired: Whether signatures count after their certificates have expired. Nothing proves when they were made.
    """

    pem: bytes
    subject: str | None = None
    expired: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, subject: str | None = None, expired: bool = False) -> Authority:
        """Read the certificate of an authority.

        Args:
            path: A PEM file.
            subject: Who of those whom it certifies can sign; see the attribute.
            expired: Whether signatures count after their certificates have expired.

        Raises:
            SourceMissingError: If there is no such file.
            FormatError: If it has no certificate, or one that is not an authority's.
            MissingDependencyError: If `cryptography` is not installed.
        """
        from cryptography.hazmat.primitives.serialization import Encoding

        found = read_certificates(path)
        for certificate in found:
            if not _is_authority(certificate):
                raise FormatError(
                    "the certificate is not of an authority",
                    path=os.fsdecode(path),
                    found=certificate.subject.rfc4514_string(),
                    hint="Name the authority that issued it, or put its public key under keys",
                )
        return cls(b"".join(certificate.public_bytes(Encoding.PEM) for certificate in found), subject, expired)

    @property
    def name(self) -> str:
        """What the policy trusts, for people."""
        names = [certificate.subject.rfc4514_string() for certificate in _parsed(self.pem)]
        return f"{self.subject or 'anybody'} certified by {listed(names, 2, ' or ')}"


def certified_signer(bundle: Bundle, authorities: Sequence[Authority], name: str) -> tuple[Authority, str, str]:
    """Return which authority certified who made a signature, their name and the id of the key; else TrustError."""
    leaf, *others = (parse_certificate(der, name) for der in bundle.certificates)
    key = certified_key(leaf, name)
    if not is_signed_by(bundle, key):
        raise TrustError(f"the signature in `{name}` is not by the key of its certificate")
    faults = []
    names = _names_of(leaf)
    for authority in authorities:
        pattern = authority.subject
        name_found = next((each for each in names if pattern is None or is_like(pattern, each)), None)
        is_anybody = pattern is None or name_found is not None
        fault = _fault(authority, leaf, others) if is_anybody else f"it is for {listed(names, 3) or 'nobody'}"
        if fault is None:
            return authority, name_found or "an owner without a name", key.id
        faults.append(fault)
    raise TrustError(
        f"the certificate in `{name}` is not by an authority that the policy trusts", found=listed(faults, 3, "; ")
    )


def _fault(authority: Authority, leaf: x509.Certificate, others: list[x509.Certificate]) -> str | None:
    """Say why an authority does not stand behind a certificate; None if it does."""
    from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

    now = datetime.now(UTC)
    at = min(now, leaf.not_valid_before_utc) if authority.expired else now
    builder = PolicyBuilder().store(Store(list(_parsed(authority.pem)))).time(at).max_chain_depth(_MAX_DEPTH)
    for_authorities, for_leaf = _extension_policies()
    builder = builder.extension_policies(ca_policy=for_authorities, ee_policy=for_leaf)
    try:
        builder.build_client_verifier().verify(leaf, others)
    except VerificationError as error:
        return str(error).partition(" (encountered processing")[0]
    return None


@cache
def _extension_policies() -> tuple[ExtensionPolicy, ExtensionPolicy]:
    """Return what certificates must say, of authorities and of signers, whose use `certified_key` checks."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID
    from cryptography.x509.verification import Criticality, ExtensionPolicy

    def may_certify(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
        if usage is not None and not usage.key_cert_sign:
            raise ValueError("an authority's certificate is not for certifying others")

    def may_certify_signers(_: Policy, __: x509.Certificate, purposes: x509.ExtendedKeyUsage | None) -> None:
        allowed = {ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
        if purposes is not None and allowed.isdisjoint(purposes):
            raise ValueError("an authority's certificate is for other purposes than signatures")

    def limits_no_directory(_: Policy, __: x509.Certificate, limits: x509.NameConstraints | None) -> None:
        names = [*(limits.permitted_subtrees or ()), *(limits.excluded_subtrees or ())] if limits else []
        if any(isinstance(name, x509.DirectoryName) for name in names):  # cryptography before 50 ignores these
            raise ValueError("an authority's certificate limits names in a way that is not supported")

    free, any_way = ExtensionPolicy.permit_all(), Criticality.AGNOSTIC
    for_authorities = (
        free
        .require_present(x509.BasicConstraints, any_way, None)  # that it is an authority's, it checks itself
        .may_be_present(x509.KeyUsage, any_way, may_certify)
        .may_be_present(x509.ExtendedKeyUsage, any_way, may_certify_signers)
        .may_be_present(x509.NameConstraints, any_way, limits_no_directory)
    )
    return for_authorities, free


@cache
def _parsed(pem: bytes) -> tuple[x509.Certificate, ...]:
    from cryptography import x509

    return tuple(x509.load_pem_x509_certificates(pem))


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False


def _names_of(certificate: x509.Certificate) -> list[str]:
    """Return the names of the owner of a certificate whose extensions can be read."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = certificate.subject
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    names += [subject.rfc4514_string()] if len(subject.rdns) else []
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            for kind in (x509.RFC822Name, x509.UniformResourceIdentifier, x509.DNSName):
                names += extension.value.get_values_for_type(kind)
    return names
