"""What a directory may hold that its owner would not publish."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import RefusedError, SourceMissingError, TensorkeepError, UnsupportedError
from tensorkeep.signing import PrivateKey

WEIGHTS = {f"w{n}": np.full((100, 100), n, np.float32) for n in range(4)}
INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    tensorkeep.save_checkpoint(WEIGHTS, folder, max_shard_size="100KB")
    folder.joinpath("config.json").write_text("{}")
    return folder


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex[:8]}"


@pytest.mark.parametrize("name", ["config.json", "LICENSE", "deep/code.py"])
def test_links_out_of_the_directory_are_refused(model: Path, url: str, tmp_path: Path, name: str) -> None:
    tmp_path.joinpath("mine").write_text("nobody's business")
    path = model / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path / "mine")

    for options in ({}, {"max_shard_size": "50KB"}):
        with pytest.raises(RefusedError, match="link leads out"):
            tensorkeep.push(model, url, include=["deep/*.py"] if "/" in name else [], **options)

    path.unlink()
    path.symlink_to(model / INDEX)
    tensorkeep.push(model, url, include=["deep/*.py"] if "/" in name else [])


def test_folders_that_are_links_are_not_entered(model: Path, url: str, tmp_path: Path) -> None:
    tmp_path.joinpath("mine").mkdir()
    tmp_path.joinpath("mine", "a.py").write_text("")
    model.joinpath("deep").symlink_to(tmp_path / "mine")

    with pytest.raises(SourceMissingError):
        tensorkeep.push(model, url, include="deep/*.py")


def test_the_cache_of_the_hub_is_links(model: Path, url: str, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--model" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "blobs").mkdir()
    for number, path in enumerate(sorted(model.iterdir())):
        path.rename(snapshot.parents[1] / "blobs" / str(number))
        snapshot.joinpath(path.name).symlink_to(f"../../blobs/{number}")

    assert "config.json" in tensorkeep.push(snapshot, url).sent


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_what_is_no_file_is_refused_at_once(model: Path, url: str) -> None:
    os.mkfifo(model / "code.py")

    with pytest.raises(UnsupportedError):
        tensorkeep.push(model, url, include="*.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", f"export HF_TOKEN=hf_{'aB3' * 11}x\n"),
        ("config.json", json.dumps({"token": f"ghp_{'aB3' * 12}"})),
        ("aes.txt", "0123456789abcdef" * 4 + "\n"),
        ("aes.txt", "0123456789abcdef" * 4 + "\r\n\r\n"),
        ("aes.txt", b64encode(bytes(range(32))).decode() + "\n"),
        ("aes.txt", bytes(range(100, 132)).decode("latin-1")),
        ("notes.txt", f"token_hf_{'aB3' * 11}x"),
        ("notes.txt", f"hf_oauth_{'aB3' * 20}"),
        ("notes.txt", f"github_pat_{'aB3' * 20}_{'x' * 20}"),
        ("id.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3\n"),
    ],
)
def test_secrets_are_not_published(model: Path, url: str, name: str, text: str) -> None:
    model.joinpath(name).write_bytes(text.encode("latin-1"))

    with pytest.raises(RefusedError, match="secret") as caught:
        tensorkeep.push(model, url)

    assert name in str(caught.value)
    assert text.strip() not in str(caught.value)


def test_32_letters_are_no_secret(model: Path, url: str) -> None:
    model.joinpath("notes.txt").write_text("these are 32 letters of a sentence"[:32])

    assert tensorkeep.push(model, url)


def test_a_private_key_is_not_published_even_if_a_pattern_names_it(model: Path, url: str) -> None:
    PrivateKey.generate().write(model / "k.pem")

    with pytest.raises(RefusedError, match="a private key"):
        tensorkeep.push(model, url, include="*")


def test_hidden_files_and_code_stay_here(model: Path, url: str) -> None:
    model.joinpath(".git").mkdir()
    for name in (".env", ".git/config.json", "run.py", "events.out.tfevents"):
        model.joinpath(name).write_text("x")

    assert set(tensorkeep.push(model, url, include="*.py", dry_run=True).sent) & {".env", "run.py"} == {"run.py"}
    assert not any(name.startswith(".") for name in tensorkeep.push(model, url, include="*", dry_run=True).sent)


@pytest.mark.parametrize(
    "file", ["../mine.safetensors", "/etc/passwd", "a\\b.safetensors", "C:x", ".env", "a\nb", ""]
)
def test_an_index_that_names_other_files(model: Path, url: str, tmp_path: Path, file: str) -> None:
    tensorkeep.save(WEIGHTS, tmp_path / "mine.safetensors")
    model.joinpath(".env").write_text("x")
    for path in model.glob("*.safetensors"):
        path.unlink()
    model.joinpath(INDEX).write_text(json.dumps({"weight_map": {"w0": file}}))

    for verify in (True, False):
        with pytest.raises(TensorkeepError):
            tensorkeep.push(model, url, verify=verify)
