"""Keys in hardware: signatures equal in form to those by key files, and PINs that nobody sees."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from model_signing import verifying
from model_signing._signing.pkcs11uri import Pkcs11URI

import tensorkeep
from tensorkeep.errors import FormatError, RefusedError, SourceMissingError, TransportError, UnsupportedError
from tensorkeep.signing import HardwareKey, parse_bundle, sign
from tensorkeep.signing._key_uri import parse_key_uri
from tests.support.signing.authorities import Holder
from tests.support.signing.checkpoints import save_checkpoint
from tests.support.signing.softhsm import KEYS, LABEL, PIN, Token, running_softhsm


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Token]:
    with running_softhsm(tmp_path_factory.mktemp("softhsm") / "hsm") as found:
        yield found
        pkcs11.unload(found.module)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "ckpt")


def public(name: str, folder: Path) -> Path:
    (folder / "key.pub").write_bytes(KEYS[name].public.pem())
    return folder / "key.pub"


@pytest.mark.parametrize("name", KEYS)
def test_a_signature_is_like_that_by_a_file(tmp_path: Path, directory: Path, token: Token, name: str) -> None:
    with HardwareKey.open(token.uri(name), PIN) as key:
        assert key.public == KEYS[name].public
        path = Path(sign(directory, key).path)
    by_hardware = parse_bundle(path.read_bytes(), "model.sig")
    assert tensorkeep.verify(directory, trust=public(name, tmp_path)).is_whole
    assert Path(sign(directory, KEYS[name]).path) == path
    by_file = parse_bundle(path.read_bytes(), "model.sig")

    assert (by_hardware.hint, by_hardware.payload) == (by_file.hint, by_file.payload)
    if name == "ed25519":  # the only signatures without chance in them, and model-signing does not know them
        assert by_hardware.signature == by_file.signature
    else:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "key.pub")
        verifier.verify(directory, path)


def test_a_key_in_hardware_may_have_a_certificate(tmp_path: Path, directory: Path, token: Token) -> None:
    root = Holder("root", authority=True)
    leaf = Holder("release", root, key=KEYS["p384"]._key)
    with HardwareKey.open(token.uri("p384"), PIN) as key:
        sign(directory, key, certificate=leaf.chain_pem(tmp_path / "chain.pem"))
    (tmp_path / "policy.toml").write_text('[[rules]]\nauthorities = [{ certificate = "root.pem" }]')
    root.pem(tmp_path / "root.pem")

    assert tensorkeep.verify(directory, trust=tmp_path / "policy.toml").signers == ("release",)
    verifier = verifying.Config().use_certificate_verifier(certificate_chain=[tmp_path / "root.pem"])
    verifier.verify(directory, directory / "model.sig")


def test_model_signing_signs_with_the_same_uri(tmp_path: Path, directory: Path, token: Token) -> None:
    (tmp_path / "pin").write_text(PIN)
    uri = token.uri("p256", f"&pin-source=file://{tmp_path / 'pin'}")
    command = [sys.executable, "-m", "model_signing", "sign", "pkcs11-key", "--pkcs11_uri", uri, str(directory)]
    subprocess.run([*command, "--signature", str(directory / "model.sig")], check=True, capture_output=True)
    theirs = (directory / "model.sig").read_bytes()

    assert tensorkeep.verify(directory, trust=public("p256", tmp_path)).is_whole
    with HardwareKey.open(uri) as key:
        sign(directory, key)
    ours = (directory / "model.sig").read_bytes()
    assert json.loads(ours)["verificationMaterial"] == json.loads(theirs)["verificationMaterial"]


def test_a_wrong_pin_is_refused_and_not_shown(token: Token) -> None:
    with pytest.raises(RefusedError, match="the PIN is wrong") as caught:
        HardwareKey.open(token.uri("p256"), "not the PIN")

    assert "not the PIN" not in repr(caught.value) + str(caught.value)
    with pytest.raises(RefusedError, match="needs a PIN"):
        HardwareKey.open(token.uri("p256"))
    with HardwareKey.open(token.uri("p256"), lambda: PIN) as key:
        assert PIN not in repr(key)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(key)


def test_several_keys_of_a_token_are_open_at_once(token: Token) -> None:
    with HardwareKey.open(token.uri("p256"), PIN) as first, HardwareKey.open(token.uri("p384"), PIN) as second:
        for key in (first, second, first):
            assert key.public.has_signed(b"message", key.sign(b"message"))


def test_a_key_that_wants_its_pin_each_time_gets_it(token: Token) -> None:
    template = {pkcs11.Attribute.ALWAYS_AUTHENTICATE: True, pkcs11.Attribute.SIGN: True}
    with pkcs11.lib(token.module).get_token(token_label=LABEL).open(rw=True, user_pin=PIN) as session:
        curve = {pkcs11.Attribute.EC_PARAMS: bytes.fromhex("06082a8648ce3d030107")}
        parameters = session.create_domain_parameters(pkcs11.KeyType.EC, curve, local=True)
        parameters.generate_keypair(store=True, label="careful", id=b"\xff\x00", private_template=template)

    with HardwareKey.open(token.uri("careful").replace("object=careful", "id=%FF%00"), PIN) as key:
        assert all(key.public.has_signed(message, key.sign(message)) for message in (b"one", b"two"))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (("object=p256", "object=none"), SourceMissingError, "no such private key"),
        (("token=", "token=other"), SourceMissingError, "no such token"),
        (("token=", "model=SoftHSM%20v1;token="), SourceMissingError, "no such token"),
        (("object=p256", "object=p256;id=%09"), SourceMissingError, "no such private key"),
        (("libsofthsm2.so", "none.so"), TransportError, "the hardware failed"),
        (("object=p256", "object=p256;type=cert"), FormatError, "a private key"),
    ],
    ids=["key", "token", "model", "id", "module", "type"],
)
def test_what_is_not_there_is_named(token: Token, change: tuple[str, str], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        HardwareKey.open(token.uri("p256").replace(*change), PIN)


MODULE = "module-path=/usr/lib/m.so"


@pytest.mark.parametrize(
    "uri",
    [
        f"pkcs11:token=a%20b;object=k?{MODULE}",
        f"pkcs11:object=%C3%A9;id=%01%FF%3B;token=t?{MODULE}&pin-source=/run/pin",
        f"pkcs11:slot-id=7;id=k?pin-source=file:///run/pin&{MODULE}",
        f"pkcs11:model=m;manufacturer=a%3Db;serial=00ff;token=t;type=private;object=k?{MODULE}",
    ],
)
def test_uris_mean_what_model_signing_reads_in_them(uri: str) -> None:
    ours, theirs = parse_key_uri(uri), Pkcs11URI()
    theirs.parse(uri)
    key_id, label = theirs.get_keyid_and_label()

    assert ours.key_id == key_id
    assert ours.attributes.get("object") == (label.encode("latin-1").decode() if label is not None else None)
    for name, value in ours.attributes.items():
        assert theirs.get_path_attribute(name).encode("latin-1").decode() == value
    assert ours.module == theirs.get_query_attribute("module-path")
    assert (ours.pin_file is not None) == theirs.has_pin()


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("file:///key.pem", FormatError),
        ("pkcs11:", FormatError),
        (f"pkcs11:token=t?{MODULE}", FormatError),
        (f"pkcs11:object=k;object=l?{MODULE}", FormatError),
        (f"pkcs11:object=%FF?{MODULE}", FormatError),
        (f"pkcs11:object=a%00b?{MODULE}", FormatError),
        (f"pkcs11:object=k;slot-id=-1?{MODULE}", FormatError),
        (f"pkcs11:object=k;slot-id={'9' * 99}?{MODULE}", FormatError),
        (f"pkcs11:object=k;library-version=3?{MODULE}", UnsupportedError),
        (f"pkcs11:object?{MODULE}", UnsupportedError),
        ("pkcs11:object=k?module-path=m.so", FormatError),
        ("pkcs11:object=k?module-name=../m", FormatError),
        ("pkcs11:object=k?module-name=no-such-module", SourceMissingError),
        (f"pkcs11:object=k?{MODULE}&pin-source=%7Ccommand", FormatError),
        (f"pkcs11:object=k?{MODULE}&pin-source=https://example.com/pin", FormatError),
        (f"pkcs11:object=k?{MODULE}&pin-value=4711", RefusedError),
        (f"pkcs11:object=k;pin-value=4711?{MODULE}", RefusedError),
    ],
)
def test_other_uris_are_errors_without_a_pin(uri: str, error: Any) -> None:
    with pytest.raises(error) as caught:
        parse_key_uri(uri)
    assert "4711" not in str(caught.value)


def test_a_module_is_found_by_its_name(tmp_path: Path) -> None:
    for name in ("libother.so", "libmine.so.1.2", "mine.txt", "notmine.so"):
        (tmp_path / name).touch()

    assert parse_key_uri(f"pkcs11:object=k?module-name=mine&module-path={tmp_path}").module.endswith("libmine.so.1.2")
