"""Where keys come from, and that their bytes are nowhere to be seen."""

from __future__ import annotations

import os
import pickle
import stat
import sys
import traceback
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.encryption import new_key
from tensorkeep.errors import EncryptedError, TensorkeepError, UnsupportedError

SECRET = bytes(range(200, 232))
FORMS = (SECRET.hex(), SECRET.hex().upper(), b64encode(SECRET).decode())


def everything_said(error: BaseException) -> str:
    """Return a traceback with its messages, and what tools show of local variables outside of this file."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    shown = "".join(str(frame.locals) for frame in frames if frame.filename != __file__)
    return shown + repr(error) + str(error) + repr(getattr(error, "__dict__", ""))


def seen_in(text: str) -> bool:
    forms = (*FORMS, repr(SECRET), repr(bytearray(SECRET)))
    return any(form in text for form in forms)


@pytest.mark.parametrize("content", [*(form.encode() + b"\n" for form in FORMS), SECRET])
def test_the_forms_of_a_key_are_one_key(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k").write_bytes(content)
    key = tensorkeep.Key(SECRET)

    assert tensorkeep.Key.from_file(tmp_path / "k") == key
    program = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"]
    assert tensorkeep.Key.from_command([*program, str(tmp_path / "k")]) == key
    if content != SECRET:
        monkeypatch.setenv("MY_KEY", content.decode())
        assert tensorkeep.Key.from_env("MY_KEY") == key


@pytest.mark.parametrize(
    "content",
    [b"", b"short", SECRET + b"x", SECRET[:31], SECRET.hex().encode()[:-1], b"x" * 5000, (FORMS[0] + "0").encode()],
)
def test_what_is_no_key_is_refused_and_not_shown(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k").write_bytes(content)
    monkeypatch.setenv("MY_KEY", "no-key-" + FORMS[0])

    for make in (
        lambda: tensorkeep.Key.from_file(tmp_path / "k"),
        lambda: tensorkeep.Key.from_env("MY_KEY"),
        lambda: tensorkeep.Key.from_command([sys.executable, "-c", "print('nothing')"]),
    ):
        with pytest.raises(UnsupportedError, match="is not a key") as raised:
            make()
        assert not seen_in(everything_said(raised.value))


def test_missing_sources_of_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="could not read the key"):
        tensorkeep.Key.from_file(tmp_path / "missing")
    with pytest.raises(EncryptedError, match="TENSORKEEP_KEY is not set"):
        tensorkeep.Key.from_env()
    with pytest.raises(EncryptedError, match="could not run 'no-such-program'"):
        tensorkeep.Key.from_command("no-such-program --secret")
    with pytest.raises(EncryptedError, match="exit status 3"):
        tensorkeep.Key.from_command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(UnsupportedError, match="command for the key cannot be parsed"):
        tensorkeep.Key.from_command("program 'without end")
    with pytest.raises(TypeError, match="must be bytes"):
        tensorkeep.Key("text")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_a_key_in_the_place_of_where_it_is_is_not_shown(form: str) -> None:
    for use in (
        lambda: tensorkeep.save({"w": np.ones(1)}, "w.safetensors", encrypt=form),
        lambda: tensorkeep.Key.from_env(form),
        lambda: tensorkeep.Key.from_command(form),
    ):
        with pytest.raises(UnsupportedError, match="a key itself") as raised:
            use()
        assert form not in str(raised.value)


def test_the_bytes_of_a_key_are_not_shown_as_a_path(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="`Key`") as caught:
        tensorkeep.save_checkpoint({"a": np.ones(1)}, tmp_path / "new", encrypt=SECRET)
    assert not seen_in(str(caught.value))


@pytest.mark.parametrize("fails", ["AESGCM", "HKDF"])
def test_errors_in_the_midst_of_a_cipher_show_no_key(
    tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography.hazmat.primitives.ciphers import aead
    from cryptography.hazmat.primitives.kdf import hkdf

    key = tensorkeep.Key(SECRET)
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "w.safetensors", encrypt=key)
    assert key.id

    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(aead if fails == "AESGCM" else hkdf, fails, broken)
    for use in (
        lambda: tensorkeep.save({"w": np.ones(3)}, tmp_path / "x.safetensors", encrypt=key),
        lambda: tensorkeep.save_checkpoint({"w": np.ones(3)}, tmp_path / "x", encrypt=key),
        lambda: tensorkeep.load(tmp_path / "w.safetensors", key=key),
    ):
        with pytest.raises(MemoryError) as raised:
            use()
        assert not seen_in(everything_said(raised.value))


def test_keys_are_in_no_message_repr_or_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key, other = tensorkeep.Key(SECRET), tensorkeep.Key(bytes(32))
    tensorkeep.save({"w": np.ones(3_000)}, "w.safetensors", encrypt=key)
    content = bytearray(Path("w.safetensors").read_bytes())
    content[-100] ^= 1
    Path("damaged.safetensors").write_bytes(content)
    failures = (
        lambda: tensorkeep.load("damaged.safetensors", key=key),
        lambda: tensorkeep.load("missing.safetensors", key=key),
        lambda: tensorkeep.open("w.safetensors", key=[other]),
        lambda: tensorkeep.open("w.safetensors", key=key)["nothing"],
        lambda: tensorkeep.save({"w": object()}, "x.safetensors", encrypt=key),
        lambda: tensorkeep.save({"w": np.ones(3)}, "missing/x.safetensors", encrypt=key),
        lambda: pickle.dumps(key),
        lambda: pickle.dumps(tensorkeep.open("w.safetensors", key=key)),
        lambda: tensorkeep.save({}, "x.safetensors", encrypt=key, digests=False),
    )

    for fail in failures:
        with pytest.raises((TensorkeepError, TypeError)) as raised:
            fail()
        said = everything_said(raised.value)
        assert not seen_in(said), said
    for shown in (key, tensorkeep.Encryption(key), tensorkeep.open("w.safetensors", key=key)):
        assert not seen_in(repr(shown) + str(shown))


def test_files_with_a_key_from_a_file_can_be_pickled(tmp_path: Path) -> None:
    key = new_key(tmp_path / "k")
    tensorkeep.save({"w": np.arange(30_000)}, tmp_path / "w.safetensors", encrypt=key)

    with tensorkeep.open(tmp_path / "w.safetensors", key=key) as file:
        pickled = pickle.dumps(file)
        lazy = pickle.loads(pickle.dumps(file["w"]))
    assert bytes.fromhex((tmp_path / "k").read_text()) not in pickled
    np.testing.assert_array_equal(pickle.loads(pickled)["w"][29_990:], np.arange(29_990, 30_000))
    np.testing.assert_array_equal(lazy[5:7], [5, 6])


def test_a_new_key_is_only_for_its_owner_and_replaces_nothing(tmp_path: Path) -> None:
    assert main(["keygen", str(tmp_path / "k"), "--kind", "aes-256"]) == 0

    assert stat.S_IMODE(os.stat(tmp_path / "k").st_mode) == 0o600
    key = tensorkeep.Key.from_file(tmp_path / "k")
    with pytest.raises(FileExistsError):
        new_key(tmp_path / "k")
    assert tensorkeep.Key.from_file(tmp_path / "k") == key


def test_commands_take_keys_from_files_variables_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    new_key("k")
    tensorkeep.save({"w": np.arange(5.0)}, "w.safetensors")
    monkeypatch.setenv("MY_KEY", Path("k").read_text())

    assert main(["reshard", "w.safetensors", "a", "--encrypt", "k"]) == 0
    assert main(["reshard", "a", "b", "--key-env", "MY_KEY", "--encrypt", "env:MY_KEY", "--show-names"]) == 0
    for option, value in (
        ("--key-file", "k"),
        ("--key-env", "MY_KEY"),
        ("--key-command", f"{sys.executable} -c \"print(open('k').read())\""),
    ):
        assert main(["slice", "b", "w", "1:3", option, value]) == 0
        assert main(["verify", "b", option, value]) == 0
        assert main(["inspect", "b", option, value]) == 0
        assert main(["diff", "w.safetensors", "b", option, value]) == 0
    assert main(["convert", "b", "c.safetensors", "--key-file", "k", "--encrypt", "command:cat k"]) == 0
    assert main(["inspect", "b"]) == 0
    assert main(["slice", "b", "w"]) == 2
    assert main(["diff", "w.safetensors", "b"]) == 2
    assert main(["reshard", "b", "d", "--tp", "2", "--plan", "w=colwise", "--encrypt", "k"]) == 2
    assert main(["reshard", "b", "d", "--show-names"]) == 2
    assert not Path("d").exists()
    assert Path("k").read_text().strip() not in capsys.readouterr()[0]
    np.testing.assert_array_equal(tensorkeep.load("c.safetensors", key="k")["w"], np.arange(5.0))
