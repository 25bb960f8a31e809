"""The Hugging Face Hub, as a server that answers like it: what is asked, and what is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import AccessDeniedError, IntegrityError, SourceMissingError, TransportError
from tests.support.remote.hub_server import HubServer

WEIGHTS = {f"w{n}": np.random.default_rng(n).standard_normal((100, 200), np.float32) for n in range(4)}


@pytest.fixture(autouse=True)
def online(monkeypatch) -> None:
    """Let huggingface_hub ask the server here, also where the tests are to ask no other."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("repository")
    tensorkeep.save_checkpoint(WEIGHTS, folder, max_shard_size="200KB")
    folder.joinpath("config.json").write_text('{"of": "a model"}')
    folder.joinpath("modeling.py").write_text("raise SystemExit")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[HubServer]:
    with HubServer("org/model", dict(files), token="so-secret") as running:
        yield running


def at(hub: HubServer, path: str = "", **options: object) -> str:
    return remote(f"hf://org/model/{path}", endpoint=hub.url, token="so-secret", pause_s=0.001, attempts=2, **options)


def test_a_model_is_opened_and_read_by_ranges(hub: HubServer) -> None:
    with tensorkeep.open(at(hub)) as checkpoint:
        hub.requests.clear()
        assert np.array_equal(checkpoint["w2"][50:52], WEIGHTS["w2"][50:52])
    asked = [(path.partition("/")[0] or path.split("/")[1], span) for _, path, span in hub.requests]
    assert len(asked) <= 1, "one request, or none if the row came with the header"


def test_a_model_is_fetched_without_asking_what_each_part_is(
    hub: HubServer, files: dict[str, bytes], tmp_path: Path
) -> None:
    tensorkeep.fetch(at(hub), tmp_path)

    expected = {name: data for name, data in files.items() if name != "modeling.py"}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected
    assert sum(command == "POST" for command, _, _ in hub.requests) == 0
    assert sum(path.startswith("/api/") for _, path, _ in hub.requests) <= 4


def test_what_the_hub_says_is_held_against_what_comes(hub: HubServer, tmp_path: Path) -> None:
    """Of files without digests of their own."""
    plain = tmp_path / "plain.safetensors"
    tensorkeep.save(WEIGHTS, plain, digests=False)
    hub.files.clear()
    hub.files["model.safetensors"] = plain.read_bytes()
    damaged = bytearray(plain.read_bytes())
    damaged[-50] ^= 1
    promised = hashlib.sha256(plain.read_bytes()).hexdigest()

    tensorkeep.fetch(at(hub), tmp_path / "whole")
    assert np.array_equal(tensorkeep.load(tmp_path / "whole")["w1"], WEIGHTS["w1"])

    hub.files["model.safetensors"] = bytes(damaged)
    hub.promised["model.safetensors"] = promised
    with pytest.raises(IntegrityError, match="SHA-256"):
        tensorkeep.fetch(at(hub), tmp_path / "damaged")


def test_who_has_no_token_is_denied_and_nothing_secret_is_said(hub: HubServer) -> None:
    with pytest.raises(TransportError) as caught:
        tensorkeep.open(remote("hf://org/model/model.safetensors", endpoint=hub.url, token="wrong-one", attempts=1))

    assert isinstance(caught.value, AccessDeniedError | SourceMissingError)
    assert "wrong-one" not in str(caught.value)


def test_what_is_not_there(hub: HubServer) -> None:
    with pytest.raises(SourceMissingError):
        tensorkeep.open(at(hub, "nothing.safetensors"))
    with pytest.raises(SourceMissingError):
        tensorkeep.open(remote("hf://org/other/", endpoint=hub.url, token="so-secret", attempts=1))
