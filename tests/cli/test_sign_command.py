"""`tensorkeep keygen`, `sign` and `verify --trust`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorkeep.cli import main
from tensorkeep.numpy import save_file
from tensorkeep.signing import PrivateKey, sign
from tests.support.signing.checkpoints import save_checkpoint
from tests.support.signing.softhsm import PIN, running_softhsm

SECRET = "correct horse battery staple"


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    key = PrivateKey.generate()
    key.write(tmp_path / "key.pem")
    sign(save_checkpoint(tmp_path / "ckpt"), key)
    return tmp_path / "ckpt"


def test_the_password_comes_from_file_or_environment(tmp_path: Path, signed: Path, run: Any) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    environment = os.environ | {"TENSORKEEP_KEY_PASSWORD": SECRET}

    made = run("keygen", "new.pem", "--kind", "ed25519", "--password-file", "password", cwd=tmp_path)
    by_file = run("sign", "ckpt", "--key", "new.pem", "--password-file", "password", cwd=tmp_path)
    by_environment = run("sign", "ckpt", "--key", "new.pem", cwd=tmp_path, env=environment)
    without = run("sign", "ckpt", "--key", "new.pem", cwd=tmp_path)
    verified = run("verify", "ckpt", "--trust", "new.pub", cwd=tmp_path)

    assert [done.returncode for done in (made, by_file, by_environment, without, verified)] == [0, 0, 0, 2, 0]
    assert "encrypted" in without.stderr
    assert "signed by" in verified.stdout
    assert not any(SECRET in done.stdout + done.stderr for done in (made, by_file, by_environment, without, verified))


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_password_makes_no_key(tmp_path: Path, run: Any, text: str) -> None:
    (tmp_path / "password").write_text(text)

    by_file = run("keygen", "new.pem", "--password-file", "password", cwd=tmp_path)
    by_environment = run("keygen", "new.pem", cwd=tmp_path, env=os.environ | {"TENSORKEEP_KEY_PASSWORD": ""})

    assert [done.returncode for done in (by_file, by_environment)] == [2, 2]
    assert "the password is empty" in by_file.stderr
    assert not list(tmp_path.glob("new*"))


def test_a_pin_comes_from_file_or_environment(tmp_path: Path, signed: Path, run: Any) -> None:
    (tmp_path / "pin").write_text(PIN + "\n")
    with running_softhsm(tmp_path / "hsm") as token:
        environment = os.environ | {"TENSORKEEP_KEY_PASSWORD": PIN}
        by_file = run("sign", "ckpt", "--pkcs11", token.uri("p256"), "--password-file", "pin", cwd=tmp_path)
        by_environment = run("sign", "ckpt", "--pkcs11", token.uri("p256"), cwd=tmp_path, env=environment)
        without = run("sign", "ckpt", "--pkcs11", token.uri("p256"), cwd=tmp_path)
        in_the_uri = run("sign", "ckpt", "--pkcs11", token.uri("p256", "&pin-value=4711"), cwd=tmp_path)
    two = run("sign", "ckpt", "--pkcs11", "pkcs11:", "--keyless", cwd=tmp_path)

    done = (by_file, by_environment, without, in_the_uri, two)
    assert [each.returncode for each in done] == [0, 0, 2, 2, 2]
    assert "needs a PIN" in without.stderr
    assert not any(secret in each.stdout + each.stderr for each in done for secret in (PIN, "4711"))


def test_findings_and_signers_are_in_the_json(tmp_path: Path, signed: Path, run: Any) -> None:
    whole = run("verify", "ckpt", "--trust", "key.pub", "--json", cwd=tmp_path)
    (signed / "extra.json").write_text("{}")
    damaged = run("verify", "ckpt", "--trust", "key.pub", "--json", cwd=tmp_path)

    again = run("sign", "ckpt", "--key", "key.pem", "--json", cwd=tmp_path)
    assert whole.returncode == 0
    assert json.loads(whole.stdout)["signers"] == [json.loads(again.stdout)["signer"]]
    assert damaged.returncode == 1
    assert [finding["kind"] for finding in json.loads(damaged.stdout)["findings"]] == ["unsigned"]


def test_a_key_in_the_checkpoint_is_refused(tmp_path: Path, signed: Path, run: Any) -> None:
    (signed / "key.pub").write_bytes((tmp_path / "key.pub").read_bytes())

    done = run("verify", "ckpt", "--trust", "ckpt/key.pub", cwd=tmp_path)

    assert done.returncode == 2
    assert "never read from the checkpoint's own directory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["keygen", "mine.pub"], r"not named like a public one \(mine\.pub\)"),
        (["keygen", "ckpt"], r"already exists \(ckpt\)"),
        (["keygen", "missing/key.pem"], r"could not write the key \(missing/key\.pem\): No such file or directory"),
        (["keygen", "k", "--kind", "rsa"], "expected ecdsa-p256 or ed25519 or aes-256, found 'rsa'"),
        (["keygen", "k", "--kind", "aes-256", "--encrypt"], "Leave out --encrypt"),
        (["sign", "ckpt", "--key", "key.pub"], "a public key, where a private one belongs"),
        (["sign", "ckpt/model.sig", "--key", "key.pem"], r"this is a signature \(ckpt/model\.sig\)"),
    ],
)
def test_mistakes_with_keys(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    signed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 2
    assert re.search(complaint, capsys.readouterr().err)
    assert not list(tmp_path.glob("*.pub.pub"))


def test_what_is_signed_without_digests_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    key = PrivateKey.generate()
    key.write("key.pem")
    (tmp_path / "ckpt").mkdir()
    save_file({"w": np.ones(3), "b": np.ones(2)}, "ckpt/w.safetensors")
    assert main(["verify", "ckpt/w.safetensors", "--trust", "key.pub"]) == 1
    assert "\nnot trusted: 1 place; " in capsys.readouterr().out

    sign("ckpt/w.safetensors", key)

    assert main(["verify", "ckpt/w.safetensors", "--trust", "key.pub"]) == 0
    assert capsys.readouterr().out.startswith("whole: 1 file, 2 tensors, SHA-256 of 1 file, ")


READING = {
    "inspect": ("inspect", "ckpt/model-00001-of-00003.safetensors"),
    "inspect a directory": ("inspect", "ckpt", "--stats"),
    "inspect ranks": ("inspect", "ckpt", "--ranks", "2"),
    "inspect for a library": ("inspect", "ckpt", "--for", "numpy"),
    "slice": ("slice", "ckpt", "w0", "[0]"),
    "check": ("check", "ckpt"),
    "check against another": ("check", "ckpt", "--against", "ckpt"),
    "diff": ("diff", "ckpt", "ckpt"),
    "reshard": ("reshard", "ckpt", "new"),
    "join": ("join", "ckpt", "more/w.safetensors", "new"),
    "convert": ("convert", "ckpt", "new"),
    "export": ("export", "ckpt", "new.npz"),
}


@pytest.mark.parametrize("name", READING)
def test_commands_read_only_what_is_signed(tmp_path: Path, signed: Path, run: Any, name: str) -> None:
    PrivateKey.generate().write(tmp_path / "stranger.pem")
    (tmp_path / "more").mkdir()
    save_file({"more": np.ones(3)}, tmp_path / "more" / "w.safetensors")
    sign(tmp_path / "more" / "w.safetensors", tmp_path / "key.pem")

    by_stranger = run(*READING[name], "--trust", "stranger.pub", cwd=tmp_path)
    assert (by_stranger.returncode, "no trusted signature" in by_stranger.stderr) == (2, True)
    assert not list(tmp_path.glob("new*"))
    assert run(*READING[name], "--trust", "key.pub", cwd=tmp_path).returncode == 0


def test_one_directory_for_each_rank_has_no_trust_option(tmp_path: Path, signed: Path, run: Any) -> None:
    refused = run("reshard", "ckpt", "new", "--tp", "2", "--trust", "key.pub", cwd=tmp_path)

    assert refused.returncode == 2
    assert "--tp" in refused.stderr
