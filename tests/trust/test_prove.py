"""What signatures prove: nothing, if any part is forged; and only what enough trusted keys have signed."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, TensorkeepError, TrustError
from tensorkeep.signing import PrivateKey, parse_bundle, parse_statement, sign
from tensorkeep.trust import Policy, Proof, Rule, prove
from tests.support.signing.checkpoints import save_checkpoint
from tests.support.signing.forgeries import FORGERIES, forgeries, resigned
from tests.support.soak import SEED, rounds

KEYS = [PrivateKey.generate(), PrivateKey.generate("ed25519"), PrivateKey.generate()]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = save_checkpoint(tmp_path_factory.mktemp("signed") / "ckpt")
    sign(directory, KEYS[0])
    sign(directory, KEYS[1], output=directory / "other.sig")
    return directory


def rule(*keys: int, **members: Any) -> Rule:
    return Rule(keys=tuple(KEYS[key].public for key in keys), **members)


def proof(path: Path | str, *keys: int, **members: Any) -> Proof:
    found = prove(rule(*keys, **members), str(path))
    assert found is not None
    return found


def changed(text: bytes, change: Any, key: PrivateKey) -> bytes:
    """Change a statement, and sign it well."""
    bundle = json.loads(text)
    statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
    change(statement["predicate"])
    bundle["dsseEnvelope"]["payload"] = b64encode(json.dumps(statement).encode()).decode()
    return resigned(bundle, key)


@pytest.mark.soak
@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("key", [0, 1], ids=["ecdsa", "ed25519"])
def test_forgeries_prove_nothing(tmp_path: Path, signed: Path, name: str, key: int) -> None:
    text = (signed / ["model.sig", "other.sig"][key]).read_bytes()
    n = 0
    for forged in forgeries(name, text, rounds(20, 1000), SEED):
        (tmp_path / "model.sig").write_bytes(forged)
        with pytest.raises(TrustError):
            prove(rule(key), str(tmp_path))
        n += 1
    assert n


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "C:\\x", "c:x", "x\0", "", "a//b", "a\\b", "./x", "\u202ex", "a/."]
)
def test_a_trusted_key_cannot_name_files_elsewhere(signed: Path, name: str) -> None:
    def rename(predicate: dict[str, Any]) -> None:
        predicate["resources"][0]["name"] = name

    forged = changed((signed / "model.sig").read_bytes(), rename, KEYS[0])

    with pytest.raises(FormatError, match="malformed"):
        parse_statement(parse_bundle(forged, "model.sig").payload, "model.sig")


@pytest.mark.parametrize("member", ["method", "hash_type", "allow_symlinks"])
@pytest.mark.parametrize("value", [None, 3, [], {}, "shards"], ids=str)
def test_a_statement_of_other_types_is_an_error_of_ours(signed: Path, member: str, value: object) -> None:
    def change(predicate: dict[str, Any]) -> None:
        predicate["serialization"][member] = value

    text = changed((signed / "model.sig").read_bytes(), change, KEYS[0])
    try:
        parse_statement(parse_bundle(text, "model.sig").payload, "model.sig")
    except TensorkeepError:
        return
    assert (member, value) == ("hash_type", "shards"), "it is in each resource, too"


def test_every_cut_and_flip_of_a_bundle_is_an_error_or_the_same(signed: Path) -> None:
    text = (signed / "model.sig").read_bytes()
    good = parse_bundle(text, "model.sig")
    for at in range(0, len(text), 7):
        for broken in (text[:at], text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]):
            try:
                found = parse_bundle(broken, "model.sig")
            except TensorkeepError:
                continue
            if found.payload == good.payload:
                continue
            assert not KEYS[0].public.has_signed(found.payload, found.signature)


def test_as_many_keys_as_the_rule_demands_must_have_signed(signed: Path) -> None:
    assert proof(signed, 0).signers == (KEYS[0].public.id,)
    assert set(proof(signed, 0, 1, signatures=2).signers) == {KEYS[0].public.id, KEYS[1].public.id}
    with pytest.raises(TrustError, match="too few"):
        prove(rule(0, 2, signatures=2), str(signed))
    with pytest.raises(TrustError, match="another key"):
        prove(rule(2), str(signed))
    assert prove(Rule(signatures=0), str(signed)) is None


def test_one_key_does_not_count_twice(tmp_path: Path, signed: Path) -> None:
    text = (signed / "model.sig").read_bytes()
    for name in ("a.sig", "b.sig"):
        (tmp_path / name).write_bytes(text)

    with pytest.raises(TrustError, match="too few"):
        prove(rule(0, 1, signatures=2), str(tmp_path))


def test_a_header_counts_only_if_enough_keys_signed_it(tmp_path: Path, signed: Path) -> None:
    def drop(predicate: dict[str, Any]) -> None:
        del predicate["tensorkeep"]

    (tmp_path / "a.sig").write_bytes((signed / "model.sig").read_bytes())
    bundle = json.loads((signed / "other.sig").read_bytes())
    (tmp_path / "b.sig").write_bytes(changed(json.dumps(bundle).encode(), drop, KEYS[1]))

    assert any(file.header for file in proof(tmp_path, 0, 1).files.values())
    assert not any(file.header for file in proof(tmp_path, 0, 1, signatures=2).files.values())


def test_signatures_that_contradict_each_other_prove_nothing(tmp_path: Path, signed: Path) -> None:
    def change(predicate: dict[str, Any]) -> None:
        predicate["resources"][0]["digest"] = "0" * 64

    def subject(text: bytes) -> bytes:
        import hashlib

        bundle = json.loads(text)
        statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
        digests = b"".join(bytes.fromhex(each["digest"]) for each in statement["predicate"]["resources"])
        statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(digests).hexdigest()
        bundle["dsseEnvelope"]["payload"] = b64encode(json.dumps(statement).encode()).decode()
        return resigned(bundle, KEYS[1])

    (tmp_path / "a.sig").write_bytes((signed / "model.sig").read_bytes())
    (tmp_path / "b.sig").write_bytes(subject(changed((signed / "other.sig").read_bytes(), change, KEYS[1])))

    with pytest.raises(TrustError, match="contradict"):
        prove(rule(0, 1), str(tmp_path))
    assert proof(tmp_path, 0)


def test_other_files_named_like_signatures_do_not_matter(tmp_path: Path, signed: Path) -> None:
    (tmp_path / "model.sig").write_bytes((signed / "model.sig").read_bytes())
    (tmp_path / "README.md.sig").write_text("-----BEGIN PGP SIGNATURE-----")
    (tmp_path / "folder.sig").mkdir()
    for n in range(20):
        (tmp_path / f"{n}.sig").write_text("[]")

    assert proof(tmp_path, 0)


def test_statements_of_later_versions_prove_whole_files_only(signed: Path) -> None:
    def later(predicate: dict[str, Any]) -> None:
        predicate["tensorkeep"] = {"version": 2, "something": "else"}

    text = changed((signed / "model.sig").read_bytes(), later, KEYS[0])
    files = parse_statement(parse_bundle(text, "model.sig").payload, "model.sig").files

    assert files
    assert not any(file.header for file in files.values())


def test_no_cryptography_is_imported_without_trust(signed: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys, tensorkeep\n"
        f"tensorkeep.open({str(signed)!r})\n"
        "assert not {'cryptography', 'tomllib', 'sigstore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_policy_of_two_keys(signed: Path) -> None:
    assert tensorkeep.verify(signed, trust=Policy((rule(0, 1, signatures=2),))).is_whole
    assert not tensorkeep.verify(signed, trust=Policy((rule(2),)))


def test_signatures_of_several_directories_do_not_add_up(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sign(save_checkpoint(tmp_path / name), KEYS[0])
    (tmp_path / "two" / "generation_config.json").write_text('{"of": "two"}')
    sign(tmp_path / "two", KEYS[0])
    for name in ("generation_config.json", "model.sig"):
        target = tmp_path / "one" / name.replace("model.sig", "other.sig")
        target.write_bytes((tmp_path / "two" / name).read_bytes())
    assert "generation_config.json" in proof(tmp_path / "one", 0).files, (
        "the second names everything, as it was signed"
    )

    (tmp_path / "three").mkdir()
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "three" / "adapter.safetensors")
    sign(tmp_path / "three", KEYS[0])
    for name in ("adapter.safetensors", "model.sig"):
        target = tmp_path / "one" / name.replace("model.sig", "third.sig")
        target.write_bytes((tmp_path / "three" / name).read_bytes())
    assert "adapter.safetensors" not in proof(tmp_path / "one", 0).files
    policy = Policy((rule(0),))
    findings = tensorkeep.verify(tmp_path / "one", trust=policy).findings
    assert [(finding.kind, finding.shard) for finding in findings] == [("unsigned", "adapter.safetensors")]
