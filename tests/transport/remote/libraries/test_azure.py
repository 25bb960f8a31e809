"""A container of Azure, as Azurite emulates it: read, sliced, saved to, and not by two at once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime

import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import AccessDeniedError, SourceChangedError, SourceMissingError
from tests.support.remote import get_azurite
from tests.support.remote.killed_pushes import push_killed_everywhere

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one that Azurite's documentation gives to everybody."""

STATE = {"w": np.random.default_rng(0).standard_normal((400, 300), np.float32), "step": 3, "b": np.ones(7)}


def signed(method: str, url: str, canonical: str) -> urllib.request.Request:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    text = f"{method}{chr(10) * 12}x-ms-date:{date}\nx-ms-version:2021-08-06\n{canonical}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        "Content-Length": "0",
    }
    return urllib.request.Request(url, method=method, headers=headers)


@pytest.fixture(scope="module")
def endpoint():
    program = get_azurite.find_azurite()
    if program is None:
        pytest.skip(f"there is no Azurite; {get_azurite.HOW}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    server = subprocess.Popen([*command, "--blobPort", str(port)])
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    request = ("PUT", f"{url}/models?restype=container", f"/{ACCOUNT}/{ACCOUNT}/models\nrestype:container")
    for _ in range(300):
        try:
            urllib.request.urlopen(signed(*request), timeout=5).close()
            break
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    yield url
    server.kill()
    server.wait()


@pytest.fixture
def at(endpoint):
    def at(path: str, **options):
        given = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint, "attempts": 2} | options
        return remote(f"az://models/{path}", **given)

    return at


def is_same(state) -> bool:
    return np.array_equal(state["w"], STATE["w"]) and np.array_equal(state["b"], STATE["b"]) and state["step"] == 3


def test_a_file(at) -> None:
    path = at("one/model.safetensors")

    tensorkeep.save(STATE, path)

    assert is_same(tensorkeep.load(path))
    assert np.array_equal(tensorkeep.open(path)["w"][5:9, ::3], STATE["w"][5:9, ::3])
    assert tensorkeep.verify(path).is_whole


def test_a_directory_saved_twice(at) -> None:
    path = at("many/")

    tensorkeep.save_checkpoint(STATE | {"step": 2}, path, max_shard_size="200KB")
    tensorkeep.save_checkpoint(STATE, path, max_shard_size="1MB")

    assert is_same(tensorkeep.load(path))
    assert len(tensorkeep.open(path).shards) == 1


def test_two_saves_at_once(at) -> None:
    path = at("race/")
    tensorkeep.save_checkpoint(STATE | {"step": 1}, path, max_shard_size="200KB")
    overtaken: list[bool] = []

    def overtake(*_) -> None:
        if not overtaken:
            overtaken.append(True)
            tensorkeep.save_checkpoint(STATE, path, max_shard_size="200KB")

    with pytest.raises(SourceChangedError, match="another save was finished"):
        tensorkeep.save_checkpoint(STATE | {"step": 9}, path, max_shard_size="200KB", progress=overtake)

    assert is_same(tensorkeep.load(path))


def test_an_object_that_was_replaced(at) -> None:
    path = at("replaced/model.safetensors")
    tensorkeep.save(STATE, path)
    with tensorkeep.open(at("replaced/model.safetensors", head_nbytes=1024)) as file:
        tensorkeep.save(STATE | {"w": STATE["w"] + 1}, path)
        with pytest.raises(SourceChangedError):
            file["w"].load()
    assert tensorkeep.verify(path).is_whole


def test_what_is_missing_or_forbidden(at) -> None:
    with pytest.raises(SourceMissingError):
        tensorkeep.open(at("nothing.safetensors"))
    with pytest.raises(AccessDeniedError) as caught:
        tensorkeep.open(at("one/model.safetensors", account_key=base64.b64encode(b"wrong").decode()))
    assert KEY not in str(caught.value)


def test_steps_of_a_run(at) -> None:
    kept = tensorkeep.CheckpointStore(at("run"), keep_last=2)

    for step in (1, 2, 3, 4):
        kept.save(step, STATE | {"step": step, "b": np.full(7, step)}, {"valid_loss": -step})
    kept.save(4, STATE | {"step": 4})

    assert kept.steps() == [3, 4]
    assert tensorkeep.CheckpointStore(at("run")).load()["step"] == 4
    assert all(tensorkeep.verify(kept.path_of(step)).is_whole for step in (3, 4))
    with pytest.raises(SourceMissingError):
        kept.load(1)


def test_pushes_that_are_killed(at, tmp_path) -> None:
    push_killed_everywhere(at("pushed/"), tmp_path)


def test_a_published_run(at, tmp_path) -> None:
    feed = at("feed/")
    for step in range(3):
        tensorkeep.save_checkpoint({"w": STATE["w"] * step}, tmp_path / "model")
        tensorkeep.patches.Publisher(feed, anchor_every=2, keep_anchors=1).publish(step, tmp_path / "model")

    with tensorkeep.follow(feed, timeout_s=0) as updates:
        update = next(updates)
        update.apply_to(tmp_path / "worker")
        assert (update.step, update.is_anchor, updates.poll()) == (2, True, None)
    assert tensorkeep.diff(tmp_path / "model", tmp_path / "worker").is_equal
