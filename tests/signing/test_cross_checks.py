"""Signatures of ours in model-signing's own verifier, and its signatures in ours."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from model_signing import hashing, signing, verifying
from model_signing._signing.sign_sigstore_pb import pae_compat

import tensorkeep
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Authority, Policy, Rule
from tests.support.signing.authorities import Holder
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


def test_a_certified_key_counts_if_the_policy_has_the_key(tmp_path: Path, directory: Path) -> None:
    root = Holder("root", authority=True)
    leaf = Holder("leaf", root, curve=CURVES[1])
    leaf.private.write(tmp_path / "key.pem")
    key_of(CURVES[1]).write(tmp_path / "other.pem")
    hashed = hashing.Config().set_ignored_paths(paths=[directory / "model.sig"])
    signer = signing.Config().set_hashing_config(hashed)
    signer.use_certificate_signer(
        private_key=tmp_path / "key.pem",
        signing_certificate=leaf.pem(tmp_path / "leaf.crt"),
        certificate_chain=[root.pem(tmp_path / "root.crt")],
    )
    signer.sign(directory, directory / "model.sig")

    assert tensorkeep.verify(directory, trust=tmp_path / "key.pub").is_whole
    (finding,) = tensorkeep.verify(directory, trust=tmp_path / "other.pub").findings
    assert "not by a key that the policy trusts" in str(finding.found)
    change(directory)
    assert not tensorkeep.verify(directory, trust=tmp_path / "key.pub")


def early_statement(directory: Path) -> dict[str, Any]:
    """What model-signing 0.2 signed."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    digests = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}, "annotations": {"actual_hash_algorithm": "file-sha256"}}
            for name, digest in digests.items()
        ],
        "predicateType": "https://model_signing/Digests/v0.1",
        "predicate": {"unused": "Unused, just passed due to API requirements"},
    }


@pytest.mark.parametrize("curve", CURVES[:2], ids=lambda curve: curve.name)
def test_signatures_of_model_signing_0_2_count(tmp_path: Path, directory: Path, curve: Any) -> None:
    """They sign the payload as Python shows it, with SHA-256 for each curve, and have other members."""
    root = Holder("root", authority=True)
    leaf = Holder("release", root, curve=curve)
    path = Path(sign(directory, leaf.private, certificate=leaf.chain_pem(tmp_path / "chain.pem")).path)
    bundle = json.loads(path.read_bytes())
    path.unlink()
    payload = json.dumps(early_statement(directory), indent=2).encode()
    signature = leaf.key.sign(pae_compat(payload), ec.ECDSA(hashes.SHA256()))
    bundle["dsseEnvelope"]["payload"] = b64encode(payload).decode()
    bundle["dsseEnvelope"]["signatures"] = [{"sig": b64encode(signature).decode(), "keyid": None}]
    del bundle["verificationMaterial"]["tlogEntries"]
    path.write_text(json.dumps(bundle))
    verifier = verifying.Config().use_certificate_verifier(certificate_chain=[root.pem(tmp_path / "root.pem")])
    verifier.set_hashing_config(hashing.Config().set_ignored_paths(paths=[path]))
    verifier.verify(directory, path)
    (tmp_path / "key.pub").write_bytes(leaf.private.public.pem())
    policy = Policy((Rule(authorities=(Authority.read(tmp_path / "root.pem"),)),))

    assert tensorkeep.verify(directory, trust=policy).is_whole
    assert tensorkeep.load(directory, trust=tmp_path / "key.pub")
    path.write_text(json.dumps(bundle).replace(b64encode(signature).decode()[:40], "A" * 40))
    assert not tensorkeep.verify(directory, trust=policy)
    path.write_text(json.dumps(bundle))
    change(directory)
    assert not tensorkeep.verify(directory, trust=policy)


def test_signatures_of_model_signing_1_0_count(tmp_path: Path, directory: Path) -> None:
    """They have the key itself instead of its id, which nobody trusts, and an id that is null."""
    key = key_of(CURVES[1])
    path = Path(sign(directory, key).path)
    bundle = json.loads(path.read_bytes())
    raw = b64encode(key.public.pem()).decode()
    bundle["verificationMaterial"] = {"publicKey": {"rawBytes": raw, "keyDetails": "PKIX_ECDSA_P384_SHA_384"}}
    bundle["dsseEnvelope"]["signatures"][0]["keyid"] = None
    path.write_text(json.dumps(bundle))
    (tmp_path / "key.pub").write_bytes(key.public.pem())
    verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "key.pub").verify(directory, path)

    assert tensorkeep.verify(directory, trust=tmp_path / "key.pub").is_whole
    (tmp_path / "key.pub").write_bytes(key_of(CURVES[1]).public.pem())
    assert not tensorkeep.verify(directory, trust=tmp_path / "key.pub")
