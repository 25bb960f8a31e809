"""The server and those who read from it: tensorkeep itself, curl, the standard library; and nginx beside it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep import remote
from tensorkeep.cli import main
from tensorkeep.errors import (
    AccessDeniedError,
    SourceChangedError,
    SourceMissingError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.server import Served, Server
from tests.support.remote.nginx import running_nginx
from tests.support.server.raw_http import get
from tests.support.server.weights import WEIGHTS, assert_weights

QUICK = {"pause_s": 0.01, "longest_pause_s": 0.02, "attempts": 100}


@pytest.mark.parametrize(
    "path",
    [
        *("weights.safetensors", "sharded/", "sharded", "sharded/model.safetensors.index.json", "links/folder/"),
        *("single/", "single", "single/what-ever.safetensors"),
    ],
)
def test_checkpoints_are_read_whole_and_verified(server: Server, path: str) -> None:
    assert_weights(tensorkeep.load(server.url + path))
    assert tensorkeep.verify(server.url + path).is_whole


def test_parts_of_tensors(server: Server) -> None:
    for path in ("weights.safetensors", "sharded/"):
        with tensorkeep.open(server.url + path) as file:
            for name, whole in WEIGHTS.items():
                assert np.array_equal(file[name][5:60:7, 100:200:3], whole[5:60:7, 100:200:3])


def test_pickles(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(100_000)}, tmp_path / "pytorch_model.bin")
    with Server(tmp_path, port=0) as server:
        for path in ("", "pytorch_model.bin"):
            with tensorkeep.open(server.url + path, framework="torch") as file:
                assert torch.equal(file["w"][5:70_000:9], torch.arange(100_000)[5:70_000:9])


def test_several_checkpoints_in_a_directory_are_named(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tensorkeep.save(WEIGHTS, tmp_path / f"{name}.safetensors")
    match = r"one\.safetensors, other\.safetensors"
    with Server(tmp_path, port=0) as server, pytest.raises(UnsupportedError, match=match):
        tensorkeep.open(server.url)


def test_a_directory_without_a_checkpoint_says_what_it_has(server: Server) -> None:
    with pytest.raises(SourceMissingError, match=r"no checkpoint in the directory.*50% é"):
        tensorkeep.open(server.url + "a b/")
    with pytest.raises(SourceMissingError):
        tensorkeep.open(server.url + "missing/")
    with pytest.raises(SourceMissingError):
        tensorkeep.open(server.url + "missing.safetensors")


def test_steps_of_a_store(tmp_path: Path) -> None:
    store = tensorkeep.CheckpointStore(tmp_path)
    for step in (1, 2):
        store.save(step, {"frozen": np.arange(1000), "trained": np.full(10, step)})
    with Server(tmp_path, port=0) as server:
        first = tensorkeep.open(server.url + "step-00000001/")
        store.save(3, {"frozen": np.arange(1000), "trained": np.full(10, 3)})  # which links the files of the first

        assert first["frozen"][-1] == 999
        for step in (2, 3):
            assert tensorkeep.load(server.url + f"step-0000000{step}/")["trained"][0] == step


def test_a_file_that_was_replaced_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"x": np.zeros(10**6)}, path)
    with Server(tmp_path, port=0) as server, tensorkeep.open(server.url + path.name) as file:
        assert file["x"][-1] == 0
        tensorkeep.save({"x": np.ones(10**6)}, path)

        with pytest.raises(SourceChangedError):
            file["x"].load()
        assert tensorkeep.load(server.url + path.name)["x"][-1] == 1


def test_credentials(served: Path) -> None:
    with Server(served, port=0, token="secret") as server:
        bare = server.url.removeprefix("http://")
        with pytest.raises(AccessDeniedError, match="401"):
            tensorkeep.open(server.url + "weights.safetensors")
        with pytest.raises(AccessDeniedError, match="401"):
            tensorkeep.open(server.url + "single/")
        with pytest.raises(AccessDeniedError, match=r"does not accept the credentials \(401\).*Check the token"):
            tensorkeep.open(f"http://:wrong@{bare}weights.safetensors")
        for path in ("weights.safetensors", "single/", "sharded/"):
            assert_weights(tensorkeep.load(remote(server.url + path, headers={"Authorization": "Bearer secret"})))
            assert_weights(tensorkeep.load(f"http://:secret@{bare}{path}"))


def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    tensorkeep.save({"x": np.arange(10**6)}, tmp_path / "x.safetensors")
    with Server(tmp_path, port=0, connections=1) as server:
        found = tensorkeep.load(remote(server.url + "x.safetensors", request_nbytes=10**6, connections=8, **QUICK))

    assert found["x"][-1] == 10**6 - 1


def test_what_a_load_asks_for(served: Path) -> None:
    told: list[Served] = []
    with Server(served, port=0, on_served=told.append) as server:
        tensorkeep.load(server.url + "weights.safetensors")

    assert sum(each.nbytes for each in told) == served.joinpath("weights.safetensors").stat().st_size


class TestListings:
    """Lists that no honest server gives."""

    @pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"names": 1}', b'{"names": [1]}', b"\xff"])
    def test_that_are_none(self, text: bytes) -> None:
        with lying(text) as url, pytest.raises(TransportError, match="not a directory listing"):
            tensorkeep.open(url)

    def test_with_names_that_lead_elsewhere(self) -> None:
        names = ["../../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", ".x.safetensors"]
        text = json.dumps({"names": names}).encode()
        with lying(text) as url, pytest.raises(SourceMissingError, match="no checkpoint"):
            tensorkeep.open(url)


@contextmanager
def lying(listing: bytes) -> Iterator[str]:
    """Run a server whose folders list what they do not have."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_folder = self.path.endswith("/")
            self.send_response(200 if is_folder else 404)
            self.send_header("Tensorkeep-Server", "1")
            if is_folder:
                self.send_header("Tensorkeep-Directory", "1")
            self.send_header("Content-Length", str(len(listing) * is_folder))
            self.end_headers()
            self.wfile.write(listing * is_folder)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/folder/"
        finally:
            server.shutdown()


def test_the_same_bytes_as_nginx(served: Path, server: Server) -> None:
    large = served / "large.bin"
    generator = np.random.default_rng(0)
    large.write_bytes(generator.bytes(20_000_000))
    expected = hashlib.sha256(large.read_bytes()).digest()
    with running_nginx(served) as nginx:
        for url in (server.url, nginx.url):
            with urlopen(url + "large.bin") as answer:
                assert hashlib.sha256(answer.read()).digest() == expected
        for _ in range(30):
            first, length = (int(number) for number in generator.integers(0, 20_000_000, 2))
            asked = f"bytes={first}-{first + length}"
            ours, theirs = (get(url, "/large.bin", Range=asked, Host="localhost") for url in (server.url, nginx.url))
            assert ours.body == theirs.body
            assert (ours.status, ours.headers["content-range"]) == (theirs.status, theirs.headers["content-range"])
    large.unlink()


def test_several_ranges_side_by_side_with_nginx(served: Path, server: Server) -> None:
    asked = "bytes=0-9,100-199,1000-90000,-5"
    with running_nginx(served) as nginx:
        ours, theirs = (get(url, "/bytes", Range=asked, Host="localhost") for url in (server.url, nginx.url))

    def parts(reply) -> list[bytes]:
        boundary = reply.headers["content-type"].partition("boundary=")[2].encode()
        return [part.partition(b"\r\n\r\n")[2] for part in reply.body.split(b"--" + boundary)]

    assert parts(ours) == parts(theirs)
    assert ours.status == theirs.status == 206


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_goes_on_where_it_was_cut(server: Server, served: Path, tmp_path: Path) -> None:
    part = tmp_path / "bytes"
    part.write_bytes(served.joinpath("bytes").read_bytes()[:1000])

    subprocess.run(["curl", "-sf", "-C", "-", "-o", str(part), server.url + "bytes"], check=True)

    assert part.read_bytes() == served.joinpath("bytes").read_bytes()


def test_the_standard_library_reads_a_range(server: Server, served: Path) -> None:
    with urlopen(Request(server.url + "bytes", headers={"Range": "bytes=10-19"})) as answer:
        assert answer.read() == served.joinpath("bytes").read_bytes()[10:20]


@pytest.mark.parametrize("path", ["single/", "sharded/"])
def test_commands_take_urls(server: Server, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", server.url + path]) == 0
    assert "8 (153,600 parameters)" in capsys.readouterr().out
    assert main(["verify", server.url + path]) == 0
    assert "whole" in capsys.readouterr().out
