"""Signatures with certificates: what leads to an authority of the policy counts, and nothing else.

Each verdict is compared with model-signing's. It is stricter than ours nowhere, and less strict where a test says so.
"""

from __future__ import annotations

import json
import pickle
import random
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from model_signing import hashing, signing, verifying

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, RefusedError, TensorkeepError, TrustError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Authority, Policy, Rule
from tests.support.signing.authorities import DAY, NOW, Holder
from tests.support.signing.checkpoints import save_checkpoint
from tests.support.signing.forgeries import FORGERIES, forgeries
from tests.support.soak import SEED, rounds

CODE, ANY, SERVER = (
    ExtendedKeyUsageOID.CODE_SIGNING,
    ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    ExtendedKeyUsageOID.SERVER_AUTH,
)
ROOT = Holder("root", authority=True)
MIDDLE = Holder("middle", ROOT, authority=True)
EMAIL = x509.RFC822Name("release@example.com")
SIGNER = Holder("release", MIDDLE, purposes=[CODE], names=[EMAIL])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("saved") / "ckpt")


def signed_by(directory: Path, holder: Holder, folder: Path) -> Path:
    """Sign a directory with the key and the certificates of somebody; return the signature."""
    certificate = holder.chain_pem(folder / "chain.pem")
    return Path(sign(directory, holder.private, certificate=certificate, output=directory / "model.sig").path)


def policy(root: Holder = ROOT, **members: Any) -> Policy:
    pem = root.certificate.public_bytes(Encoding.PEM)
    return Policy((Rule(authorities=(Authority(pem, **members),)),))


def verdict(directory: Path, trust: Policy) -> bool:
    try:
        with tensorkeep.open(directory, trust=trust):
            return True
    except TrustError:
        return False


def their_verdict(directory: Path, root: Holder, folder: Path) -> bool:
    verifier = verifying.Config().use_certificate_verifier(certificate_chain=[root.pem(folder / "root.pem")])
    try:
        verifier.verify(directory, directory / "model.sig")
    except Exception:  # its errors are those of OpenSSL, of the JSON and its own
        return False
    return True


CHAINS: dict[str, tuple[Callable[[], Holder], bool, bool]] = {
    "of the root": (lambda: Holder("leaf", ROOT), True, True),
    "of an intermediate authority": (lambda: SIGNER, True, True),
    "of a P-384 key": (lambda: Holder("leaf", MIDDLE, curve=ec.SECP384R1()), True, True),
    "of a P-521 key": (lambda: Holder("leaf", MIDDLE, curve=ec.SECP521R1()), True, True),
    "of an Ed25519 key": (lambda: Holder("leaf", ROOT, key=ed25519.Ed25519PrivateKey.generate()), True, False),
    "for signing code alone": (lambda: Holder("leaf", MIDDLE, usages=[], purposes=[CODE]), True, True),
    "for every purpose": (lambda: Holder("leaf", MIDDLE, purposes=[ANY]), True, True),
    "of an authority that signs itself": (
        lambda: Holder("leaf", MIDDLE, authority=True, usages=["digital_signature"]),
        True,
        True,
    ),
    "without a subject": (lambda: Holder("", ROOT, names=[EMAIL]), True, True),
    "for a server": (lambda: Holder("leaf", ROOT, purposes=[SERVER]), False, True),
    "for code, but not for signatures": (
        lambda: Holder("leaf", ROOT, usages=["key_agreement"], purposes=[CODE]),
        False,
        True,
    ),
    "for key agreement": (lambda: Holder("leaf", ROOT, usages=["key_agreement"]), False, False),
    "without a use": (lambda: Holder("leaf", ROOT, usages=[]), False, False),
    "expired": (lambda: Holder("leaf", ROOT, start=NOW - 2 * DAY, stop=NOW - DAY / 2), False, False),
    "not yet valid": (lambda: Holder("leaf", ROOT, start=NOW + DAY / 2), False, True),
    "of a stranger": (lambda: Holder("leaf", Holder("root", authority=True)), False, False),
    "of itself": (lambda: _self_signed("root"), False, False),
    "of somebody who is no authority": (lambda: Holder("leaf", Holder("middle", ROOT)), False, False),
    "of an authority that may not certify": (
        lambda: Holder("leaf", Holder("middle", ROOT, authority=True, usages=["digital_signature"])),
        False,
        False,
    ),
    "of an authority for servers": (
        lambda: Holder("leaf", Holder("middle", ROOT, authority=True, purposes=[SERVER])),
        False,
        True,
    ),
    "of an authority that has expired": (
        lambda: Holder("leaf", Holder("middle", ROOT, authority=True, start=NOW - 3 * DAY, stop=NOW - 2 * DAY)),
        False,
        False,
    ),
    "of too long a path": (
        lambda: Holder("leaf", Holder("b", Holder("a", ROOT, authority=True, path_length=0), authority=True)),
        False,
        False,
    ),
    "with an unknown critical extension": (
        lambda: Holder("leaf", ROOT, extensions=[(_UNKNOWN, True)]),
        False,
        False,
    ),
    "outside the domain of its authority": (
        lambda: Holder("leaf", _limited(x509.RFC822Name("example.com")), names=[x509.RFC822Name("a@evil.org")]),
        False,
        False,
    ),
    "outside the organization of its authority": (
        lambda: Holder("leaf", _limited(x509.DirectoryName(_ORGANIZATION))),
        False,
        False,
    ),
}
"""What a certificate is, to a function that makes it, our verdict and model-signing's."""

_UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\0")
_ORGANIZATION = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example")])


def _limited(name: x509.GeneralName) -> Holder:
    return Holder("middle", ROOT, authority=True, extensions=[(x509.NameConstraints([name], None), True)])


def _self_signed(name: str) -> Holder:
    made = Holder(name)
    made.chain = [made.certificate]
    return made


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_the_right_verdict(tmp_path: Path, saved: Path, name: str) -> None:
    make, ours, theirs = CHAINS[name]
    holder = make()
    signed = force_signature(saved, holder)

    assert verdict(signed, policy()) == ours
    assert their_verdict(signed, ROOT, tmp_path) == theirs


def force_signature(directory: Path, holder: Holder) -> Path:
    """Sign with any certificate, also with those that `sign` refuses."""
    path = Path(sign(directory, holder.private, output=directory / "model.sig").path)
    bundle = json.loads(path.read_bytes())
    ders = [certificate.public_bytes(Encoding.DER) for certificate in holder.chain]
    chain = {"certificates": [{"rawBytes": b64encode(der).decode()} for der in ders]}
    bundle["verificationMaterial"] = {"x509CertificateChain": chain, "tlogEntries": []}
    path.write_text(json.dumps(bundle))
    return directory


def test_expired_certificates_count_if_the_policy_says_so(tmp_path: Path, saved: Path) -> None:
    middle = Holder("middle", ROOT, authority=True, start=NOW - DAY)
    expired = force_signature(saved, Holder("leaf", middle, start=NOW - DAY, stop=NOW - DAY / 2))

    assert not verdict(expired, policy())
    assert verdict(expired, policy(expired=True))
    assert their_verdict(expired, ROOT, tmp_path)
    later = force_signature(saved, Holder("leaf", ROOT, start=NOW + DAY / 2))
    assert not verdict(later, policy(expired=True))


def test_ours_is_verified_by_model_signing_and_theirs_by_us(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    signed_by(directory, SIGNER, tmp_path)
    assert their_verdict(directory, ROOT, tmp_path)
    (directory / "model.sig").unlink()

    SIGNER.private.write(tmp_path / "key.pem")
    leaf = SIGNER.pem(tmp_path / "leaf.pem")
    config = signing.Config().set_hashing_config(hashing.Config().set_ignored_paths(paths=[directory / "model.sig"]))
    config.use_certificate_signer(
        private_key=tmp_path / "key.pem",
        signing_certificate=leaf,
        certificate_chain=[MIDDLE.pem(tmp_path / "middle.pem")],
    )
    config.sign(directory, directory / "model.sig")
    report = tensorkeep.verify(directory, trust=policy())

    assert report.is_whole
    assert report.signers == ("release",)
    (directory / "config.json").write_text("[]")
    assert not tensorkeep.verify(directory, trust=policy())
    assert not their_verdict(directory, ROOT, tmp_path)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (None, True),
        ("release", True),
        ("CN=release", True),
        ("release@example.com", True),
        ("*@example.com", True),
        ("*", True),
        ("CN=middle", False),
        ("*@evil.org", False),
        ("elease", False),
        ("", False),
    ],
)
def test_the_policy_says_whom_it_trusts_of_those_certified(
    tmp_path: Path, saved: Path, subject: str | None, expected: bool
) -> None:
    signed_by(saved, SIGNER, tmp_path)

    assert verdict(saved, policy(subject=subject)) == expected


def test_a_policy_file_names_authorities(tmp_path: Path, saved: Path) -> None:
    signed_by(saved, SIGNER, tmp_path)
    ROOT.pem(tmp_path / "ca.pem")
    rules = tmp_path / "tensorkeep.toml"

    for subject, expected in {"*@example.com": True, "*@example.org": False}.items():
        rules.write_text(f'[[rules]]\nauthorities = [{{ certificate = "ca.pem", subject = "{subject}" }}]')
        assert bool(tensorkeep.verify(saved, trust=rules)) == expected
    found = tensorkeep.verify(saved, trust=rules).findings[0]
    assert "*@example.org certified by CN=root" in str(found.expected)
    assert "release@example.com" in str(found.found)
    rules.write_text('[[rules]]\nauthorities = [{ certificate = "chain.pem" }]')
    with pytest.raises(FormatError, match="not of an authority"):
        tensorkeep.verify(saved, trust=rules)
    with pytest.raises(FormatError, match="a certificate, where a public key belongs"):
        tensorkeep.verify(saved, trust=tmp_path / "ca.pem")


def test_no_authority_comes_with_the_checkpoint(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    ROOT.pem(directory / "ca.pem")
    signed_by(directory, SIGNER, tmp_path)
    rules = tmp_path / "tensorkeep.toml"
    rules.write_text('[[rules]]\nauthorities = [{ certificate = "ckpt/ca.pem" }]')

    with pytest.raises(TrustError, match="never read from the checkpoint's own directory"):
        tensorkeep.open(directory, trust=rules)


def test_all_of_one_authority_count_as_one_signer(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    pem = ROOT.certificate.public_bytes(Encoding.PEM)
    for number, name in enumerate(("alice", "bob")):
        holder = Holder(name, ROOT)
        certificate = holder.chain_pem(tmp_path / "chain.pem")
        sign(directory, holder.private, certificate=certificate, output=directory / f"{number}.sig")

    with pytest.raises(FormatError, match="more signatures than it names signers"):
        Rule(authorities=(Authority(pem),), signatures=2)
    anybody_and_carol = (Authority(pem), Authority(pem, "carol"))
    assert not verdict(directory, Policy((Rule(authorities=anybody_and_carol, signatures=2),)))
    both = Policy((Rule(authorities=(Authority(pem, "alice"), Authority(pem, "bob")), signatures=2),))
    assert tensorkeep.verify(directory, trust=both).signers == ("alice", "bob")
    assert pickle.loads(pickle.dumps(both)) == both


def test_a_key_that_two_authorities_certify_counts_once(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    roots = [ROOT, Holder("other root", authority=True)]
    alice = Holder("alice", ROOT)
    again, bob = Holder("alice", roots[1], key=alice.key), Holder("bob", roots[1])
    pems = [root.certificate.public_bytes(Encoding.PEM) for root in roots]
    both = Policy((Rule(authorities=tuple(map(Authority, pems)), signatures=2),))

    def signs(holder: Holder, name: str) -> None:
        certificate = holder.chain_pem(tmp_path / "chain.pem")
        signed = sign(directory, holder.private, certificate=certificate, output=tmp_path / name)
        Path(signed.path).rename(directory / name)

    signs(alice, "1.sig")
    signs(again, "2.sig")
    assert len(list(directory.glob("*.sig"))) == 2
    with pytest.raises(TrustError, match=r"too few trusted signatures.*counts already"):
        tensorkeep.open(directory, trust=both)
    signs(bob, "3.sig")
    assert tensorkeep.verify(directory, trust=both).signers == ("alice", "bob")


@pytest.mark.soak
@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_prove_nothing(tmp_path: Path, saved: Path, name: str) -> None:
    text = signed_by(saved, SIGNER, tmp_path).read_bytes()
    forged = tmp_path / "forged"
    forged.mkdir()
    trust = policy()
    for each in forgeries(name, text, rounds(2, 300), SEED):
        forged.joinpath("model.sig").write_bytes(each)
        with pytest.raises(TrustError):
            tensorkeep.trust.prove(trust.rules[0], str(forged))


@pytest.mark.soak
def test_a_bit_in_a_certificate_is_not_flipped_unseen(tmp_path: Path, saved: Path) -> None:
    bundle = json.loads(signed_by(saved, SIGNER, tmp_path).read_bytes())
    chain = bundle["verificationMaterial"]["x509CertificateChain"]["certificates"]
    draw = random.Random(SEED)
    for _ in range(rounds(100, 5000)):
        each = draw.randrange(len(chain))
        der = bytearray(b64decode(chain[each]["rawBytes"]))
        der[draw.randrange(len(der))] ^= 1 << draw.randrange(8)
        changed = json.loads(json.dumps(bundle))
        changed["verificationMaterial"]["x509CertificateChain"]["certificates"][each]["rawBytes"] = b64encode(
            der
        ).decode()
        (saved / "model.sig").write_text(json.dumps(changed))
        assert not verdict(saved, policy())


def test_many_chains_of_the_same_names_are_refused_in_time(saved: Path) -> None:
    """Authorities that all certify each other: every order of them is a chain."""
    key = ec.generate_private_key(ec.SECP521R1())
    others = [Holder("x", Holder("x", key=key), key=key, authority=True).certificate for _ in range(5)]
    leaf = Holder("leaf", Holder("x", key=key))
    leaf.chain = [leaf.certificate, *others]
    start = time.process_time()

    assert not verdict(force_signature(saved, leaf), policy())
    assert time.process_time() - start < 5
    leaf.chain = [leaf.certificate, *others, *others]
    assert not verdict(force_signature(saved, leaf), policy())


def test_a_certificate_that_cannot_sign_is_refused_before_it_does(tmp_path: Path, saved: Path) -> None:
    def refuse(error: type[TensorkeepError], match: str, holder: Holder, key: PrivateKey | None = None) -> None:
        with pytest.raises(error, match=match):
            sign(saved, key or holder.private, certificate=holder.chain_pem(tmp_path / "c.pem"))

    refuse(RefusedError, "for another key", SIGNER, PrivateKey.generate())
    refuse(UnsupportedError, "not for signatures", Holder("leaf", ROOT, purposes=[SERVER]))
    refuse(FormatError, "not a certificate", ROOT)  # whose chain is empty
    many = Holder("leaf", ROOT)
    many.chain *= 7
    refuse(LimitError, "too many certificates", many)
    with_rsa = Holder("leaf", ROOT, key=rsa.generate_private_key(65537, 2048))
    refuse(UnsupportedError, "not used to sign models", with_rsa, PrivateKey.generate())


def test_signing_again_with_the_same_key_replaces_the_signature(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    chain = SIGNER.chain_pem(tmp_path / "chain.pem")

    paths = [
        sign(directory, SIGNER.private, certificate=chain).path,
        sign(directory, SIGNER.private).path,
        sign(directory, SIGNER.private, certificate=chain).path,
        sign(directory, PrivateKey.generate(), certificate=None).path,
    ]

    assert len(set(paths)) == 2
    assert len(set(paths[:3])) == 1
