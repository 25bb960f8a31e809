"""Signatures of identities, with Sigstore's services on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sigstore.models import ClientTrustConfig
from sigstore.verify import Verifier

import tensorkeep
from tensorkeep.errors import TransportError, TrustError
from tensorkeep.signing import PrivateKey, sign, sign_keyless
from tensorkeep.trust import Identity, Policy, Rule
from tensorkeep.trust import _keyless as keyless
from tests.support.signing.checkpoints import TAMPERINGS, save_checkpoint
from tests.support.signing.forgeries import FORGERIES, forgeries
from tests.support.signing.sigstore_services import Sigstore, running_sigstore
from tests.support.soak import SEED, rounds

SOMEBODY = Identity("release@example.com", "https://accounts.example.com")


@pytest.fixture(scope="module")
def running() -> Iterator[Sigstore]:
    with running_sigstore() as sigstore:
        yield sigstore


@pytest.fixture
def sigstore(running: Sigstore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sigstore]:
    """Put the services here in the place of those that the `sigstore` package asks."""
    config = ClientTrustConfig.from_json(json.dumps(running.trust_config()))
    monkeypatch.setattr(ClientTrustConfig, "production", lambda **_: config)
    monkeypatch.setattr(Verifier, "production", lambda **_: Verifier(trusted_root=config.trusted_root))
    running.refuses = False
    keyless.verifier.cache_clear()
    yield running
    keyless.verifier.cache_clear()


@pytest.fixture
def signed(tmp_path: Path, sigstore: Sigstore) -> Path:
    directory = save_checkpoint(tmp_path / "ckpt")
    done = sign_keyless(directory, token=sigstore.token(SOMEBODY.identity, SOMEBODY.issuer))
    assert done.signer == SOMEBODY.identity
    assert done.path == str(directory / "model.sig")
    return directory


def policy(*identities: Identity, **members: Any) -> Policy:
    return Policy((Rule(identities=identities, **members),))


def test_who_signed_is_proven(signed: Path) -> None:
    done = tensorkeep.verify(signed, trust=policy(SOMEBODY))
    assert done.is_whole
    assert done.signers == (SOMEBODY.identity,)
    assert tensorkeep.load(signed, trust=policy(SOMEBODY))


def test_model_signing_verifies_it_too(tmp_path: Path, sigstore: Sigstore, signed: Path) -> None:
    from model_signing import verifying

    (tmp_path / "config.json").write_text(json.dumps(sigstore.trust_config()))
    verifier = verifying.Config().use_sigstore_verifier(
        identity=SOMEBODY.identity, oidc_issuer=SOMEBODY.issuer, trust_config=tmp_path / "config.json"
    )
    verifier.verify(signed, signed / "model.sig")


@pytest.mark.parametrize(
    "other",
    [
        Identity("release@example.com", "https://elsewhere.example.com"),
        Identity("somebody@example.com", SOMEBODY.issuer),
        Identity("", ""),
    ],
    ids=["issuer", "identity", "nobody"],
)
def test_others_are_not_trusted(signed: Path, other: Identity) -> None:
    with pytest.raises(TrustError, match="not by anybody the policy trusts"):
        tensorkeep.open(signed, trust=policy(other))
    assert tensorkeep.load(signed, trust=policy(other, SOMEBODY))


def test_a_policy_of_keys_does_not_trust_identities(signed: Path) -> None:
    with pytest.raises(TrustError, match="trusts only keys"):
        tensorkeep.open(signed, trust=Policy((Rule(keys=(PrivateKey.generate().public,)),)))


def test_a_key_and_an_identity_sign_together(signed: Path) -> None:
    key = PrivateKey.generate()
    both = policy(SOMEBODY, keys=(key.public,), signatures=2)
    with pytest.raises(TrustError, match="too few"):
        tensorkeep.open(signed, trust=both)
    sign(signed, key)
    assert tensorkeep.verify(signed, trust=both).is_whole


def test_certificates_of_another_authority_are_not_trusted(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Sigstore()
    other.url = "http://127.0.0.1:1"
    config = ClientTrustConfig.from_json(json.dumps(other.trust_config()))
    keyless.verifier.cache_clear()
    monkeypatch.setattr(Verifier, "production", lambda **_: Verifier(trusted_root=config.trusted_root))

    with pytest.raises(TrustError):
        tensorkeep.open(signed, trust=policy(SOMEBODY))


@pytest.mark.parametrize("what", ["a byte of a tensor", "another whole checkpoint", "a byte of another file"])
def test_what_changed_is_found(signed: Path, what: str) -> None:
    TAMPERINGS[what](signed)
    assert not tensorkeep.verify(signed, trust=policy(SOMEBODY))


@pytest.mark.soak
def test_forgeries_prove_nothing(signed: Path) -> None:
    text = (signed / "model.sig").read_bytes()
    for name in FORGERIES.keys() - {"another key id", "signed by somebody else"}:
        for forged in forgeries(name, text, rounds(1, 40), SEED):
            (signed / "model.sig").write_bytes(forged)
            with pytest.raises(TrustError):
                tensorkeep.open(signed, trust=policy(SOMEBODY))


def test_a_refusal_shows_no_token(tmp_path: Path, sigstore: Sigstore) -> None:
    token = sigstore.token("somebody@example.com", SOMEBODY.issuer)
    sigstore.refuses = True
    directory = save_checkpoint(tmp_path / "ckpt")

    with pytest.raises(TransportError, match="could not sign with an identity") as caught:
        sign_keyless(directory, token=token)

    assert token not in str(caught.value)
    assert not list(directory.glob("*.sig"))
    with pytest.raises(TransportError, match="could not sign with an identity") as caught:
        sign_keyless(directory, token="no-token")
    assert "no-token" not in str(caught.value)
