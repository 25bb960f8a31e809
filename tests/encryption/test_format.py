"""Encrypted files, decrypted by `cryptography` alone as docs/encryption.md says; and bytes that must never change."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import tensorkeep

SECRET = bytes(range(32))
KEY = tensorkeep.Key(SECRET)
STATE = {"w": np.arange(40_000, dtype=np.float32), "deep": {"b": np.ones((3, 5), np.int8), "n": 7}}


def derived(salt: bytes, what: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt, b"tensorkeep encryption 1 " + what).derive(SECRET))


def opened(text: str, what: bytes) -> tuple[dict, bytes]:
    """Decrypt an envelope."""
    envelope = json.loads(text)
    public = text[: text.rindex(',"content":"')].encode()
    content = b64decode(envelope["content"])
    return envelope, derived(b64decode(envelope["salt"]), what).decrypt(bytes(12), content, public)


def decrypted(file: bytes) -> bytes:
    """Return the plain file in an encrypted one."""
    start = 8 + int.from_bytes(file[:8], "little")
    text = json.loads(file[8:start])["__metadata__"]["tensorkeep.encryption"]
    envelope, plain = opened(text, b"header")
    blocks, context = derived(b64decode(envelope["salt"]), b"data"), envelope["nbytes"].to_bytes(8, "big")
    for number, at in enumerate(range(start, len(file), 65_552)):
        plain += blocks.decrypt(number.to_bytes(12, "big"), file[at : at + 65_552], context)
    return plain


@pytest.mark.parametrize("shows_names", [False, True])
@pytest.mark.parametrize("state", [STATE, {}, {"empty": np.zeros((0, 3))}, {"w": np.zeros(65_536, np.uint8)}])
def test_the_plain_file_is_inside_byte_for_byte(tmp_path: Path, state: dict, shows_names: bool) -> None:
    encryption = tensorkeep.Encryption(KEY, shows_names=shows_names)
    tensorkeep.save(state, tmp_path / "e.safetensors", encrypt=encryption)
    tensorkeep.save(state, tmp_path / "p.safetensors")

    assert decrypted((tmp_path / "e.safetensors").read_bytes()) == (tmp_path / "p.safetensors").read_bytes()


def test_the_plain_index_is_in_the_encrypted_one(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(STATE, tmp_path / "e", encrypt=KEY, max_shard_size=100)
    tensorkeep.save_checkpoint(STATE, tmp_path / "p", max_shard_size=100)

    stored = json.loads((tmp_path / "e" / "model.safetensors.index.json").read_bytes())
    _, text = opened(stored["metadata"]["tensorkeep.encryption"], b"index")
    inside, plain = json.loads(text), json.loads((tmp_path / "p" / "model.safetensors.index.json").read_bytes())
    records = inside["metadata"]["tensorkeep"].pop("shards")
    assert records == stored["metadata"]["tensorkeep"]["shards"]
    for index in (inside, plain):
        index["metadata"]["tensorkeep"].pop("digest")
    plain["metadata"]["tensorkeep"].pop("shards")
    assert inside == plain
    for file in stored["metadata"]["tensorkeep"]["shards"]:
        assert decrypted((tmp_path / "e" / file).read_bytes()) == (tmp_path / "p" / file).read_bytes()


def test_known_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda n: bytes(range(100, 100 + n)))
    tensorkeep.save({"w": np.arange(20_000, dtype="<i4")}, tmp_path / "known.safetensors", encrypt=KEY)

    assert KEY.id == "1a06119fb775a3717c80be7e356c40de"
    digest = hashlib.sha256((tmp_path / "known.safetensors").read_bytes()).hexdigest()
    assert digest == "046f8b5a8106463115d85d073b1c93bd1a957c68da1a9f31fe8fbe294d82a2bf"


def test_nothing_of_the_plain_file_can_be_seen(tmp_path: Path) -> None:
    state = {"unusual.name": np.full(100, 7, np.uint8), "note": "an unusual text", "more": [1, 2]}
    tensorkeep.save_checkpoint(state, tmp_path, metadata={"author": "unusual"}, encrypt=KEY, sha256=True)

    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"unusual" not in content
        assert bytes([7] * 10) not in content


def test_visible_names_show_no_values_and_no_metadata(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    encryption = tensorkeep.Encryption(KEY, shows_names=True)
    tensorkeep.save({"shown": np.ones((2, 3)), "x": 1.25}, path, metadata={"author": "hidden"}, encrypt=encryption)

    with tensorkeep.open(path) as file:
        assert {name: (lazy.dtype, lazy.shape) for name, lazy in file.items()} == {"shown": ("F64", (2, 3))}
        assert "author" not in file.metadata
    content = path.read_bytes()
    assert b"hidden" not in content
    assert b"1.25" not in content
