"""Where a fetch goes on, and what it leaves alone: what a server says must not decide it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.checkpoint import save_folder
from tensorkeep.digests import digest_of
from tensorkeep.errors import RangeNotServedError, RefusedError
from tensorkeep.layout._manifest import FileRecord, emit_manifest
from tests.support.remote.fault_server import FaultServer

N_VALUES = 50_000


def plain(value: float, n_values: int = N_VALUES) -> bytes:
    """A file without digests."""
    return safetensors.numpy.save({"w": np.full(n_values, value, np.float32)})


def is_all(path: str | Path, value: float) -> bool:
    found = tensorkeep.load(path)["w"]
    return found.shape == (N_VALUES,) and bool((found == value).all())


class Chooser(BaseHTTPRequestHandler):
    """Gives another file by query, header and user, all of one size and one date."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        chosen = (self.path.partition("=")[2], self.headers.get("X-Tenant"), self.headers.get("Authorization"))
        data = plain(2 if chosen in {("2", None, None), ("", "2", None), ("", None, "Basic Ym9iOg==")} else 1)
        first, _, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or len(data)) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(data[start:stop])


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def chooser() -> Iterator[str]:
    with running(Chooser) as url:
        yield url


def asked_for(url: str, by: str, which: int) -> str:
    name = "m.safetensors"
    return {
        "query": f"{url}{name}?id={which}",
        "headers": remote(url + name, headers={"X-Tenant": str(which)}),
        "user": url.replace("http://", f"http://{['alice', 'bob'][which - 1]}@") + name,
    }[by]


class TestOneUrlOfTwo:
    """URLs that differ only in what no message shows."""

    @pytest.mark.parametrize("by", ["query", "headers", "user"])
    def test_another_file_comes(self, chooser: str, tmp_path: Path, by: str) -> None:
        for which in (1, 2):
            path = tensorkeep.fetch(asked_for(chooser, by, which), tmp_path, overwrite=which == 2)
            assert is_all(path, which)

    @pytest.mark.parametrize("by", ["query", "headers", "user"])
    def test_a_fetch_of_another_file_does_not_go_on(self, chooser: str, tmp_path: Path, by: str) -> None:
        class EnoughError(Exception):
            pass

        def stop(done: int, total: int) -> None:
            if 0 < done < total:
                raise EnoughError

        with pytest.raises(EnoughError):
            tensorkeep.fetch(asked_for(chooser, by, 1), tmp_path, progress=stop)

        told: list[int] = []
        path = tensorkeep.fetch(asked_for(chooser, by, 2), tmp_path, progress=lambda done, _: told.append(done))
        assert told[0] == 0
        assert is_all(path, 2)

    def test_nothing_secret_is_kept(self, chooser: str, tmp_path: Path) -> None:
        url = chooser.replace("http://", "http://alice:hush-hush@") + "m.safetensors?id=secretive"
        path = tensorkeep.fetch(remote(url, headers={"X-Tenant": "unspoken"}), tmp_path)

        notes = [os.getxattr(path, name) for name in os.listxattr(path)] if hasattr(os, "listxattr") else []
        assert not [note for note in notes for word in (b"hush", b"secretive", b"unspoken") if word in note]

    def test_files_of_one_stamp_are_told_apart_by_their_first_bytes(self, tmp_path: Path) -> None:
        one, two = ({"m.safetensors": safetensors.numpy.save({"w": np.ones(9)}, {"n": n})} for n in "12")
        with FaultServer(one) as server:
            server.digests.update({id(data): (data, "same") for files in (one, two) for data in files.values()})
            tensorkeep.fetch(server.url + "m.safetensors", tmp_path)
            server.files = two
            tensorkeep.fetch(server.url + "m.safetensors", tmp_path)

        assert (tmp_path / "m.safetensors").read_bytes() == two["m.safetensors"]


def served_folder(**files: bytes) -> dict[str, bytes]:
    """Return a directory with a manifest, as whoever has the server may make it."""
    named = {name.replace("__", "/").replace("_dot_", "."): data for name, data in files.items()}
    records = {name: FileRecord(len(data), digest_of(data).hex()) for name, data in named.items()}
    return {f"m/{name}": data for name, data in {**named, "tensorkeep.manifest.json": emit_manifest(records)}.items()}


class TestFilesOfOthers:
    @pytest.mark.parametrize("name", ["_dot_bashrc", "_dot_git__hooks__pre-commit", "a___dot_b"])
    def test_a_manifest_with_hidden_files_is_refused(self, tmp_path: Path, name: str) -> None:
        with FaultServer(served_folder(**{name: b"evil"})) as server, pytest.raises(RefusedError, match="hidden"):
            tensorkeep.fetch(server.url + "m/", tmp_path / "new")

        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("name", ["train.py", "deep/notes.txt", "deep"])
    def test_what_nobody_listed_is_not_replaced(self, tmp_path: Path, name: str) -> None:
        home = tmp_path / "home"
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("mine")
        files = served_folder(**{"train.py": b"evil", "deep/notes.txt": b"evil", "config.json": b"{}"})
        with FaultServer(files) as server, pytest.raises(RefusedError, match="files that do not belong") as caught:
            tensorkeep.fetch(server.url + "m/", home)

        assert name in str(caught.value)
        assert (home / name).read_text() == "mine"
        assert [path.name for path in home.rglob("*") if path.is_file()] == [Path(name).name]

    def test_a_folder_of_mine_is_not_replaced_by_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "home" / "train").mkdir(parents=True)
        with FaultServer(served_folder(train=b"x")) as server, pytest.raises(RefusedError, match="do not belong"):
            tensorkeep.fetch(server.url + "m/", tmp_path / "home")

        assert (tmp_path / "home" / "train").is_dir()

    def test_what_an_earlier_manifest_lists_is_replaced(self, tmp_path: Path) -> None:
        with save_folder(tmp_path / "run") as folder:
            Path(folder, "train.py").write_text("old")
        (tmp_path / "run" / "mine.txt").write_text("mine")
        with FaultServer(served_folder(**{"train.py": b"new"})) as server:
            tensorkeep.fetch(server.url + "m/", tmp_path / "run", overwrite=True)

        assert (tmp_path / "run" / "train.py").read_text() == "new"
        assert (tmp_path / "run" / "mine.txt").read_text() == "mine"

    def test_the_checkpoint_that_is_there_is_replaced(self, tmp_path: Path) -> None:
        tensorkeep.save_checkpoint({f"w{n}": np.ones(1000) for n in range(3)}, tmp_path / "run", max_shard_size=9000)
        index = "model.safetensors.index.json"
        shard = min(path.name for path in (tmp_path / "run").glob("*.safetensors"))
        with FaultServer(served_folder(**{shard: plain(5), index: b"{}"})) as server:
            tensorkeep.fetch(server.url + "m/", tmp_path / "run", overwrite=True)

        assert (tmp_path / "run" / shard).read_bytes() == plain(5)

    def test_a_file_with_the_same_bytes_is_in_nobodys_way(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "train.py").write_text("same")
        with FaultServer(served_folder(**{"train.py": b"same", "new.txt": b"new"})) as server:
            tensorkeep.fetch(server.url + "m/", tmp_path / "run")

        assert (tmp_path / "run" / "new.txt").read_text() == "new"


def served_shards(*names: str) -> dict[str, bytes]:
    """Return a checkpoint whose shards have these names, one tensor in each."""
    index = {"metadata": {}, "weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    shards = {name: safetensors.numpy.save({f"w{number}": np.ones(9)}) for number, name in enumerate(names)}
    return {"m/model.safetensors.index.json": json.dumps(index).encode()} | {
        f"m/{name}": data for name, data in shards.items()
    }


class TestShardsOfOthers:
    @pytest.mark.parametrize("name", [".bashrc", ".git/hooks/pre-commit"])
    def test_hidden_shards_are_refused(self, tmp_path: Path, name: str) -> None:
        with FaultServer(served_shards(name)) as server, pytest.raises(RefusedError, match="hidden"):
            tensorkeep.fetch(server.url + "m/", tmp_path / "new")

    @pytest.mark.parametrize("name", ["train.py", "mine.safetensors", "deep/train.py"])
    def test_a_shard_replaces_nothing_that_is_not_of_the_checkpoint(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "home" / name).parent.mkdir(parents=True)
        (tmp_path / "home" / name).write_text("mine")
        files = served_shards(name, "model-00002-of-00002.safetensors")
        with FaultServer(files) as server, pytest.raises(RefusedError, match="files that do not belong"):
            tensorkeep.fetch(server.url + "m/", tmp_path / "home")

        assert (tmp_path / "home" / name).read_text() == "mine"

    def test_shards_of_any_name_that_were_fetched_before_are_replaced(self, tmp_path: Path) -> None:
        with FaultServer(served_shards("one.safetensors", "two.safetensors")) as server:
            tensorkeep.fetch(server.url + "m/", tmp_path)
            server.files["m/one.safetensors"] = new = safetensors.numpy.save({"w0": np.zeros(9)})
            tensorkeep.fetch(server.url + "m/", tmp_path)

        assert (tmp_path / "one.safetensors").read_bytes() == new


class TestLinks:
    @pytest.mark.parametrize("named", [True, False])
    def test_a_link_at_the_destination_is_followed_and_stays(self, tmp_path: Path, named: bool) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "here").mkdir()
        link = tmp_path / "here" / "m.safetensors"
        link.symlink_to(tmp_path / "data" / "real.safetensors")
        (tmp_path / "data" / "real.safetensors").write_bytes(plain(1))
        with FaultServer({"m.safetensors": plain(2)}) as server:
            path = tensorkeep.fetch(server.url + "m.safetensors", link if named else link.parent, overwrite=True)

        assert path == str(link)
        assert link.is_symlink()
        assert is_all(tmp_path / "data" / "real.safetensors", 2)
        assert sorted(os.listdir(tmp_path / "here")) == ["m.safetensors"]


class Chunked(BaseHTTPRequestHandler):
    """Does not say how long a file is."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        data = plain(7)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(data), 30_000):
            piece = data[start : start + 30_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def test_a_file_of_unknown_length(tmp_path: Path) -> None:
    with running(Chunked) as url:
        assert is_all(tensorkeep.fetch(url + "m.safetensors", tmp_path), 7)
        with pytest.raises(RangeNotServedError, match="whole_nbytes") as caught:
            tensorkeep.fetch(remote(url + "m.safetensors", whole_nbytes=1000), tmp_path)

    assert "tensorkeep.fetch" not in str(caught.value)
