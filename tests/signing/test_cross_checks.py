"""Signatures of ours in model-signing's own verifier, and its signatures in ours."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from model_signing import hashing, signing, verifying

import tensorkeep
from tensorkeep.signing import PrivateKey, sign
from tests.support.signing.checkpoints import save_checkpoint

CURVES = [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()]
PASSWORD = "correct horse battery staple"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "ckpt")


def key_of(curve: ec.EllipticCurve) -> PrivateKey:
    return PrivateKey(ec.generate_private_key(curve))


def change(directory: Path) -> None:
    (directory / "config.json").write_text("[]")


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_model_signing_verifies_ours_of_each_curve(tmp_path: Path, directory: Path, curve: Any) -> None:
    key_of(curve).write(tmp_path / "key.pem", PASSWORD)
    sign(directory, tmp_path / "key.pem", password=PASSWORD)
    verifier = verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "key.pub")

    verifier.verify(directory, directory / "model.sig")

    change(directory)
    with pytest.raises(ValueError):
        verifier.verify(directory, directory / "model.sig")


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_ours_verifies_model_signings_of_each_curve(tmp_path: Path, directory: Path, curve: Any) -> None:
    key_of(curve).write(tmp_path / "key.pem", PASSWORD)
    password: Any = PASSWORD.encode()  # model-signing asks for text, and fails with it
    signer = signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key.pem", password=password)
    signer.sign(directory, directory / "model.sig")

    assert tensorkeep.verify(directory, trust=tmp_path / "key.pub").is_whole
    assert tensorkeep.load(directory, trust=tmp_path / "key.pub")
    change(directory)
    assert not tensorkeep.verify(directory, trust=tmp_path / "key.pub")


def test_model_signing_does_not_know_ed25519(tmp_path: Path, directory: Path) -> None:
    """The page about signing says so; when this fails, it can say something better."""
    PrivateKey.generate("ed25519").write(tmp_path / "key.pem")
    sign(directory, tmp_path / "key.pem")

    assert tensorkeep.verify(directory, trust=tmp_path / "key.pub").is_whole
    with pytest.raises(AttributeError, match="curve"):
        verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "key.pub")


def certificate_of(key: PrivateKey, issuer: ec.EllipticCurvePrivateKey, name: str) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    usage = x509.KeyUsage(*[True, *[False] * 4, name == "root", False, False, False])
    return (
        x509
        .CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")]))
        .public_key(key.public._key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == "root", path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(issuer, hashes.SHA256())
    )


def test_a_key_with_a_certificate_counts_if_the_policy_has_the_key(tmp_path: Path, directory: Path) -> None:
    root, key, other = key_of(CURVES[0]), key_of(CURVES[1]), key_of(CURVES[1])
    key.write(tmp_path / "key.pem")
    other.write(tmp_path / "other.pem")
    for name, holder in {"root": root, "leaf": key}.items():
        certificate = certificate_of(holder, root._key, name)
        (tmp_path / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    hashed = hashing.Config().set_ignored_paths(paths=[directory / "model.sig"])
    signer = signing.Config().set_hashing_config(hashed)
    signer.use_certificate_signer(
        private_key=tmp_path / "key.pem",
        signing_certificate=tmp_path / "leaf.crt",
        certificate_chain=[tmp_path / "root.crt"],
    )
    signer.sign(directory, directory / "model.sig")
    verifier = verifying.Config().use_certificate_verifier(certificate_chain=[tmp_path / "root.crt"])
    verifier.verify(directory, directory / "model.sig")

    assert tensorkeep.verify(directory, trust=tmp_path / "key.pub").is_whole
    (finding,) = tensorkeep.verify(directory, trust=tmp_path / "other.pub").findings
    assert "not by a key that the policy trusts" in str(finding.found)
    change(directory)
    assert not tensorkeep.verify(directory, trust=tmp_path / "key.pub")
