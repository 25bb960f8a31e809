"""Signing: what is covered, where signatures go, and that other verifiers take them."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import (
    DestinationExistsError,
    FormatError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    UnsupportedError,
)
from tensorkeep.signing import PrivateKey, PublicKey, sign
from tests.support.signing.checkpoints import SHARD, TAMPERINGS, save_checkpoint

SECRET = "correct horse battery staple"


@pytest.fixture
def key() -> PrivateKey:
    return PrivateKey.generate()


@pytest.fixture
def signed(tmp_path: Path, key: PrivateKey) -> Path:
    key.write(tmp_path / "key.pem")
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, key)
    return directory


def statement_in(path: Path) -> dict[str, Any]:
    bundle = json.loads(path.read_text())
    return json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))


def oracle(tmp_path: Path) -> Any:
    """Give model-signing's verifier with the public key."""
    from model_signing import verifying

    return verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "key.pub")


def test_model_signing_verifies_ours(tmp_path: Path, signed: Path) -> None:
    oracle(tmp_path).verify(signed, signed / "model.sig")
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "w.safetensors")
    sign(tmp_path / "w.safetensors", tmp_path / "key.pem")
    oracle(tmp_path).verify(tmp_path / "w.safetensors", tmp_path / "w.safetensors.sig")


@pytest.mark.parametrize("what", TAMPERINGS)
def test_both_verifiers_find_what_changed(tmp_path: Path, signed: Path, what: str) -> None:
    assert tensorkeep.verify(signed, trust=tmp_path / "key.pub").is_whole

    TAMPERINGS[what](signed)

    with pytest.raises(ValueError):
        oracle(tmp_path).verify(signed, signed / "model.sig")
    assert not tensorkeep.verify(signed, trust=tmp_path / "key.pub")


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_what_model_signing_signs_is_verified(tmp_path: Path, key: PrivateKey, algorithm: Any) -> None:
    from model_signing import hashing, signing

    key.write(tmp_path / "key.pem")
    directory = save_checkpoint(tmp_path / "ckpt")
    hashes = hashing.Config().use_file_serialization(hashing_algorithm=algorithm)
    config = signing.Config().set_hashing_config(hashes)
    config.use_elliptic_key_signer(private_key=tmp_path / "key.pem").sign(directory, directory / "model.sig")

    done = tensorkeep.verify(directory, trust=tmp_path / "key.pub")

    assert done.is_whole
    assert done.signers == (key.public.id,)
    (directory / "config.json").write_text("[]")
    assert [finding.shard for finding in tensorkeep.verify(directory, trust=tmp_path / "key.pub").findings] == [
        "config.json"
    ]


def test_the_statement_names_all_files_and_headers(signed: Path) -> None:
    statement = statement_in(signed / "model.sig")

    names = [resource["name"] for resource in statement["predicate"]["resources"]]
    files = [path for path in signed.rglob("*") if path.is_file() and path.suffix != ".sig"]
    assert sorted(names) == sorted(path.relative_to(signed).as_posix() for path in files)
    with tensorkeep.open(signed) as opened:
        headers = {name: file.header_digest() for name, file in opened.shards.items()}
    section = statement["predicate"]["tensorkeep"]
    assert {name: header["blake3"] for name, header in section["headers"].items()} == headers
    assert statement["subject"][0]["name"] == "ckpt"


def test_recorded_hashes_are_used_again_only_with_their_index(tmp_path: Path, key: PrivateKey) -> None:
    directory = save_checkpoint(tmp_path / "ckpt", sha256=True)

    assert sign(directory, key).n_recorded == 3
    first = statement_in(directory / "model.sig")
    assert sign(directory, key, rehash=True).n_recorded == 0
    assert statement_in(directory / "model.sig")["subject"] == first["subject"]
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "other.safetensors")
    shutil.copy(tmp_path / "other.safetensors", directory / SHARD)
    assert sign(directory, key).n_recorded == 2


def test_damaged_headers_and_indexes_are_not_signed(tmp_path: Path, key: PrivateKey) -> None:
    for what in ("a byte of a header", "a byte of the index"):
        directory = save_checkpoint(tmp_path / what)
        TAMPERINGS[what](directory)
        with pytest.raises((IntegrityError, FormatError)):
            sign(directory, key)
        assert not list(directory.glob("*.sig"))


def test_signatures_of_several_keys_are_side_by_side(tmp_path: Path, signed: Path, key: PrivateKey) -> None:
    other = PrivateKey.generate("ed25519")
    other.write(tmp_path / "other.pem")

    second = sign(signed, other)

    assert Path(second.path).name == f"model.{other.public.id[:8]}.sig"
    assert sign(signed, key).path == str(signed / "model.sig")
    assert sign(signed, other).path == second.path
    for name in ("key.pub", "other.pub"):
        assert tensorkeep.verify(signed, trust=tmp_path / name).is_whole


def test_git_and_staging_are_left_out(tmp_path: Path, signed: Path) -> None:
    for folder in (".git", ".cache/huggingface", ".model.tensorkeep-staging"):
        (signed / folder).mkdir(parents=True)
        (signed / folder / "x").write_text("x")
    (signed / ".gitignore").write_text("x")

    assert tensorkeep.verify(signed, trust=tmp_path / "key.pub").is_whole


def test_links_are_signed_only_on_request(tmp_path: Path, signed: Path, key: PrivateKey) -> None:
    (tmp_path / "elsewhere.txt").write_text("x")
    (signed / "link.txt").symlink_to(tmp_path / "elsewhere.txt")

    with pytest.raises(UnsupportedError, match="symbolic links"):
        sign(signed, key)
    sign(signed, key, links=True)
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nkeys = ["key.pub"]\nlinks = true\n')
    assert tensorkeep.verify(signed, trust=policy).is_whole
    assert not tensorkeep.verify(signed, trust=tmp_path / "key.pub")


def test_what_cannot_be_signed_is_said(tmp_path: Path, signed: Path, key: PrivateKey) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceMissingError):
        sign(tmp_path / "missing", key)
    with pytest.raises(SourceMissingError, match="no files"):
        sign(tmp_path / "empty", key)
    with pytest.raises(UnsupportedError, match="index"):
        sign(signed / "model.safetensors.index.json", key)
    with pytest.raises(DestinationExistsError):
        sign(signed, key, output=signed / "config.json")


@pytest.mark.parametrize(
    "names",
    [["a:b"], ["CON.json"], ["x/nul"], ["a."], ["a "], ["A.json", "a.json"], ["\u00e9", "e\u0301"]],
    ids=ascii,
)
def test_names_that_mean_something_else_on_other_systems_are_not_signed(
    signed: Path, key: PrivateKey, names: list[str]
) -> None:
    for name in names:
        (signed / name).parent.mkdir(exist_ok=True)
        (signed / name).write_text("")

    with pytest.raises(UnsupportedError, match="not portable"):
        sign(signed, key)


def test_a_private_key_is_not_signed(signed: Path, key: PrivateKey) -> None:
    key.write(signed / "mine.txt")
    with pytest.raises(RefusedError, match=r"private key .*mine\.txt"):
        sign(signed, key)
    (signed / "mine.txt").unlink()
    assert sign(signed, key).n_files == 7, "three shards, the index, two other files and the public key"


@pytest.mark.parametrize("kind", ["ecdsa-p256", "ed25519"])
def test_a_key_and_its_password_are_nowhere_to_be_seen(tmp_path: Path, kind: Any) -> None:
    key = PrivateKey.generate(kind)
    public = key.write(tmp_path / "key.pem", SECRET)
    secret = (tmp_path / "key.pem").read_text().splitlines()[1]

    texts = [repr(key), str(key), repr(vars(PublicKey.read(public)))]
    for password in (None, "wrong", ""):
        with pytest.raises(RefusedError) as caught:
            PrivateKey.read(tmp_path / "key.pem", password)
        texts += [str(caught.value), repr(caught.value), repr(caught.value.fields())]
    assert PrivateKey.read(tmp_path / "key.pem", SECRET).public == key.public
    assert not any(SECRET in text or secret in text for text in texts)
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(key)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(key)
    assert pickle.loads(pickle.dumps(key.public)) == key.public
    with pytest.raises(DestinationExistsError):
        PrivateKey.generate().write(tmp_path / "key.pem")


@pytest.mark.parametrize(
    "text", [b"", b"x", b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n", b"\xff" * 99999]
)
def test_what_is_no_key_is_a_format_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "key.pem").write_bytes(text)

    with pytest.raises(FormatError):
        PublicKey.read(tmp_path / "key.pem")
    with pytest.raises(FormatError):
        PrivateKey.read(tmp_path / "key.pem")


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path, signed: Path) -> None:
    with pytest.raises(FormatError, match="private key"):
        tensorkeep.verify(signed, trust=tmp_path / "key.pem")


def test_rsa_and_other_curves_are_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    for name, made, found in (
        ("rsa", rsa.generate_private_key(65537, 2048), "RSA"),
        ("curve", ec.generate_private_key(ec.SECP256K1()), "ECDSA over secp256k1"),
    ):
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (tmp_path / name).write_bytes(pem)
        with pytest.raises(UnsupportedError, match=rf"not used to sign models \(.*{name}\).*found {found}"):
            PrivateKey.read(tmp_path / name)
        (tmp_path / name).write_bytes(made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        with pytest.raises(UnsupportedError, match=rf"not used to sign models \(.*{name}\).*found {found}"):
            PublicKey.read(tmp_path / name)


@pytest.mark.parametrize("password", ["", b"", "x" * 1024, "\N{SNOWMAN}" * 400])
def test_a_password_that_protects_nothing_or_is_too_long_is_refused(tmp_path: Path, password: str | bytes) -> None:
    with pytest.raises(RefusedError, match=r"the password is .* \(.*key\.pem\)"):
        PrivateKey.generate().write(tmp_path / "key.pem", password)
    assert not list(tmp_path.iterdir())


def test_a_file_of_several_public_keys_is_refused(tmp_path: Path) -> None:
    keys = [PrivateKey.generate().public.pem() for _ in range(2)]
    (tmp_path / "key.pub").write_bytes(b"".join(keys))

    with pytest.raises(FormatError, match="several keys in one file"):
        PublicKey.read(tmp_path / "key.pub")
    (tmp_path / "key.pub").write_bytes(b"# the key of BEGIN and ENCRYPTED\n" + keys[0])
    assert PublicKey.read(tmp_path / "key.pub").pem() == keys[0]


def test_a_comment_does_not_make_a_key_encrypted(tmp_path: Path, key: PrivateKey) -> None:
    key.write(tmp_path / "key.pem")
    text = (tmp_path / "key.pem").read_bytes()
    (tmp_path / "key.pem").write_bytes(b"# NOT ENCRYPTED\n" + text)

    assert PrivateKey.read(tmp_path / "key.pem").public == key.public


def test_a_key_of_openssl_is_read(tmp_path: Path, signed: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    for arguments in (
        ["genpkey", "-algorithm", "ed25519", "-out", "o.pem"],
        ["pkey", "-in", "o.pem", "-pubout", "-out", "o.pub"],
    ):
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    sign(signed, tmp_path / "o.pem")

    assert tensorkeep.verify(signed, trust=tmp_path / "o.pub").is_whole


def test_signing_without_cryptography_says_how_to_install_it(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'cryptography': raise ModuleNotFoundError(f'No module named {name}', name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "import tensorkeep\n"
        "try: tensorkeep.signing.PrivateKey.generate()\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "pip install 'tensorkeep[trust]'" in done.stdout


def test_signing_by_identity_needs_a_network(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sigstore.errors import TUFError
    from sigstore.models import ClientTrustConfig

    def offline(*_: object, **__: object) -> None:
        raise TUFError("no network: secret-token")

    monkeypatch.setattr(ClientTrustConfig, "production", offline)
    with pytest.raises(tensorkeep.errors.TransportError, match="could not sign with an identity") as caught:
        tensorkeep.signing.sign_keyless(signed, token="secret-token")
    assert "secret-token" not in str(caught.value)
