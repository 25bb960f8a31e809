"""What `tensorkeep.fetch` brings from real servers and stores, where it puts it, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorkeep
from tensorkeep import remote
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.errors import (
    AccessDeniedError,
    BusyError,
    DestinationExistsError,
    FormatError,
    HeaderError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.server import Server
from tensorkeep.transport.atomic import _directory as _folder
from tensorkeep.transport.atomic import _staging
from tests.support.remote.fault_server import Fault, FaultServer
from tests.support.remote.nginx import Nginx, running_nginx
from tests.support.remote.s3_bucket import Bucket

QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 5.0}
INDEX = "model.safetensors.index.json"
HEAD = 2**14


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {f"w{number}": generator.standard_normal((300, 400), np.float32) for number in range(6)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_weights(path: str | Path, seed: int = 0, **options: Any) -> None:
    found = tensorkeep.load(path, **options)
    expected = weights(seed)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    tensorkeep.save_checkpoint(weights(), root / "sharded", max_shard_size="1MB", sha256=True)
    for name in ("config.json", "tokenizer.json", "README.md"):
        root.joinpath("sharded", name).write_text(json.dumps({"name": name}))
    root.joinpath("sharded", "modeling.py").write_text("raise SystemExit")
    root.joinpath("one").mkdir()
    tensorkeep.save(weights(), root / "one" / "model.safetensors")
    tensorkeep.save(weights(3), root / "one" / "model.fp16.safetensors")
    root.joinpath("pickles").mkdir()
    state = {name: torch.from_numpy(value) for name, value in weights().items()}
    torch.save(state, root / "pickles" / "pytorch_model.bin")
    torch.save(state, root / "state.pt")
    with save_folder(root / "run-5") as folder:
        tensorkeep.save(weights(), f"{folder}/state.safetensors")
        Path(folder, "inner").mkdir()
        Path(folder, "inner", "notes.txt").write_text("of the run")
        Path(folder, "listed").write_text("listed")
        Path(folder, "empty").touch()
    root.joinpath("strange.safetensors").write_text("<!DOCTYPE html><html>Not Found</html>")
    return root


@pytest.fixture(scope="module")
def server(served: Path) -> Iterator[Nginx]:
    locations = f"location /whole/ {{ alias {served}/; max_ranges 0; }} location /no/ {{ return 403; }}"
    with running_nginx(served, locations) as running:
        yield running


@pytest.fixture
def asked(server: Nginx) -> Any:
    """Return the answers since the last look."""
    seen = len(server.log())

    def since() -> list[tuple[str, int, str, int]]:
        nonlocal seen
        new = server.log()[seen:]
        seen += len(new)
        return new

    return since


class TestWhatComes:
    @pytest.mark.parametrize("url", ["sharded/", "sharded", "whole/sharded/"])
    def test_a_directory_with_shards_and_companions(self, server: Nginx, served: Path, tmp_path: Path, url) -> None:
        told: list[tuple[int, int]] = []

        path = tensorkeep.fetch(server.url + url, tmp_path / "new", progress=lambda *so: told.append(so))

        assert path == str(tmp_path / "new")
        expected = contents(served / "sharded")
        del expected["modeling.py"]
        assert contents(tmp_path) == {f"new/{name}": data for name, data in expected.items()}
        assert tensorkeep.verify(path).is_whole
        total = sum(map(len, expected.values()))
        assert told[0] == (0, total)
        assert told[-1] == (total, total)
        assert [done for done, _ in told] == sorted(done for done, _ in told)

    def test_without_companions(self, server: Nginx, tmp_path: Path) -> None:
        tensorkeep.fetch(server.url + "sharded/", tmp_path, companions=False)

        assert "config.json" not in os.listdir(tmp_path)
        assert_weights(tmp_path)

    def test_an_index(self, server: Nginx, tmp_path: Path) -> None:
        path = tensorkeep.fetch(f"{server.url}sharded/{INDEX}", tmp_path)

        assert path == str(tmp_path / INDEX)
        assert_weights(path)
        assert "config.json" not in os.listdir(tmp_path)

    def test_one_file_into_a_directory_or_under_a_name(self, server: Nginx, tmp_path: Path) -> None:
        inside = tensorkeep.fetch(server.url + "one/model.safetensors", tmp_path / "folder")
        named = tensorkeep.fetch(server.url + "one/model.safetensors", tmp_path / "base.safetensors")

        assert inside == str(tmp_path / "folder" / "model.safetensors")
        assert named == str(tmp_path / "base.safetensors")
        assert_weights(inside)
        assert_weights(named)
        assert sorted(os.listdir(tmp_path)) == ["base.safetensors", "folder"]

    def test_a_variant(self, server: Nginx, tmp_path: Path) -> None:
        tensorkeep.fetch(server.url + "one/", tmp_path, variant="fp16")
        tensorkeep.fetch(server.url + "one/", tmp_path)

        assert_weights(tmp_path, 3, variant="fp16")
        assert_weights(tmp_path)

    @pytest.mark.parametrize(("url", "name"), [("pickles/", ""), ("pickles/pytorch_model.bin", "pytorch_model.bin")])
    def test_pickles(self, server: Nginx, served: Path, tmp_path: Path, url, name) -> None:
        path = tensorkeep.fetch(server.url + url, tmp_path)

        assert Path(path) == tmp_path / name
        assert contents(tmp_path) == contents(served / "pickles")
        assert torch.equal(tensorkeep.load(path, framework="torch")["w3"], torch.from_numpy(weights()["w3"]))

    def test_a_pickle_under_a_name(self, server: Nginx, served: Path, tmp_path: Path) -> None:
        assert tensorkeep.fetch(server.url + "whole/state.pt", tmp_path / "mine.pt") == str(tmp_path / "mine.pt")
        assert (tmp_path / "mine.pt").read_bytes() == (served / "state.pt").read_bytes()

    @pytest.mark.parametrize("way", ["", "whole/"])
    def test_a_directory_with_a_manifest(self, server: Nginx, served: Path, tmp_path: Path, way) -> None:
        path = tensorkeep.fetch(f"{server.url}{way}run-5/", tmp_path / "new")

        assert contents(tmp_path / "new") == contents(served / "run-5")
        assert verify_folder(path) == []
        assert os.listdir(tmp_path) == ["new"]

    def test_the_working_directory(self, server: Nginx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.txt").write_text("mine")

        assert tensorkeep.fetch(server.url + "sharded/", ".") == "."
        assert_weights(".")
        assert (tmp_path / "mine.txt").read_text() == "mine"

    def test_a_server_of_our_own_lists_companions(self, served: Path, tmp_path: Path) -> None:
        (served / "sharded" / "rare.yaml").write_text("rare: 1")
        try:
            with Server(str(served)) as running:
                tensorkeep.fetch(running.url + "sharded/", tmp_path)
        finally:
            (served / "sharded" / "rare.yaml").unlink()

        assert (tmp_path / "rare.yaml").read_text() == "rare: 1"
        assert_weights(tmp_path)

    def test_a_page_that_a_server_gives_for_everything_is_no_companion(self, tmp_path: Path) -> None:
        files = {"model.safetensors": safetensors.numpy.save({"a": np.ones(3)})}
        pages = dict.fromkeys(("m/config.json", "m/README.md"), b"<!doctype html><html><body>No such page")
        with FaultServer({f"m/{name}": data for name, data in files.items()} | pages) as running:
            tensorkeep.fetch(running.url + "m/", tmp_path)

        assert os.listdir(tmp_path) == ["model.safetensors"]

    def test_many_requests_bring_each_byte_once(self, server: Nginx, served: Path, tmp_path: Path, asked) -> None:
        tensorkeep.fetch(server.url + "one/model.safetensors", tmp_path)

        spans = [span for _, status, span, _ in asked() if status == 206]
        firsts = [span for span in spans if span.startswith("bytes=0-")]
        assert len(firsts) <= 3, "looked at, and asked for"
        nbytes = sum(int(stop) - int(start) + 1 for start, stop in (span[6:].split("-") for span in spans))
        assert nbytes - (served / "one" / "model.safetensors").stat().st_size <= len(firsts) * HEAD


@pytest.fixture(scope="module")
def s3(served: Path) -> Iterator[Bucket]:
    with Bucket.served() as bucket:
        for name, data in contents(served).items():
            bucket.client.put_object(Bucket="models", Key=f"base/{name}", Body=data)
        yield bucket


class TestStores:
    def test_a_prefix_of_a_bucket(self, s3: Bucket, served: Path, tmp_path: Path) -> None:
        tensorkeep.fetch(s3.at("base/sharded/"), tmp_path)

        expected = contents(served / "sharded")
        del expected["modeling.py"]
        assert contents(tmp_path) == expected

    def test_a_prefix_with_a_manifest(self, s3: Bucket, served: Path, tmp_path: Path) -> None:
        tensorkeep.fetch(s3.at("base/run-5"), tmp_path / "run")

        assert contents(tmp_path / "run") == contents(served / "run-5")

    def test_pickles_of_a_bucket(self, s3: Bucket, served: Path, tmp_path: Path) -> None:
        tensorkeep.fetch(s3.at("base/pickles"), tmp_path / "run")

        assert contents(tmp_path / "run") == contents(served / "pickles")

    def test_a_file_system_that_the_caller_made(self, served: Path, tmp_path: Path) -> None:
        memory = fsspec.filesystem("memory")
        memory.put(f"{served}/", "/fetched/", recursive=True)
        try:
            tensorkeep.fetch(remote(memory, "fetched/sharded"), tmp_path / "one")
            tensorkeep.fetch("memory://fetched/run-5/", tmp_path / "two")
        finally:
            memory.rm("/fetched", recursive=True)

        assert_weights(tmp_path / "one")
        assert (tmp_path / "one" / "config.json").exists()
        assert contents(tmp_path / "two") == contents(served / "run-5")


class TestWhatIsThere:
    def test_an_older_checkpoint_is_replaced_with_all_its_shards(self, server: Nginx, tmp_path: Path) -> None:
        tensorkeep.save_checkpoint(weights(1), tmp_path, max_shard_size="500KB")
        (tmp_path / "mine.txt").write_text("mine")

        tensorkeep.fetch(server.url + "sharded/", tmp_path, overwrite=True)

        assert_weights(tmp_path)
        assert tensorkeep.verify(tmp_path).findings == ()
        assert (tmp_path / "mine.txt").read_text() == "mine"
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]

    def test_a_single_file_replaces_shards(self, server: Nginx, tmp_path: Path) -> None:
        tensorkeep.save_checkpoint(weights(1), tmp_path, max_shard_size="500KB")

        tensorkeep.fetch(server.url + "one/", tmp_path, overwrite=True)

        assert os.listdir(tmp_path) == ["model.safetensors"]
        assert_weights(tmp_path)

    def test_an_older_directory_with_a_manifest_is_replaced(self, server: Nginx, tmp_path: Path) -> None:
        with save_folder(tmp_path / "run") as folder:
            Path(folder, "old.txt").write_text("old")
        (tmp_path / "run" / "mine.txt").write_text("mine")

        tensorkeep.fetch(server.url + "run-5/", tmp_path / "run", overwrite=True)

        assert not (tmp_path / "run" / "old.txt").exists()
        assert (tmp_path / "run" / "mine.txt").read_text() == "mine"
        assert verify_folder(tmp_path / "run") == []
        assert os.listdir(tmp_path) == ["run"]

    def test_modes_stay(self, server: Nginx, tmp_path: Path) -> None:
        tensorkeep.fetch(server.url + "one/", tmp_path)
        (tmp_path / "model.safetensors").chmod(0o640)
        tensorkeep.save(weights(1), tmp_path / "model.safetensors")

        tensorkeep.fetch(server.url + "one/", tmp_path, overwrite=True)

        assert_weights(tmp_path)
        assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o640

    @pytest.mark.parametrize("url", ["sharded/", "run-5/", "one/", "state.pt"])
    def test_what_was_fetched_before_does_not_come_again(self, server: Nginx, tmp_path: Path, asked, url) -> None:
        path = tensorkeep.fetch(server.url + url, tmp_path / "new")
        before = {file: file.stat().st_ino for file in tmp_path.rglob("*") if file.is_file()}
        asked()

        assert tensorkeep.fetch(server.url + url, tmp_path / "new") == path

        assert all(span.startswith("bytes=0-") or nbytes < 10**5 for _, _, span, nbytes in asked())
        kept = {file: inode for file, inode in before.items() if file.name != "tensorkeep.manifest.json"}
        assert {file: file.stat().st_ino for file in kept} == kept
        assert all(file.stat().st_nlink == 1 for file in kept)

    def test_shards_with_the_digests_that_are_promised_do_not_come_again(
        self, server: Nginx, served: Path, tmp_path: Path, asked
    ) -> None:
        for path in (served / "sharded").glob("*.safetensors"):
            shutil.copyfile(path, tmp_path / path.name)  # a copy without notes
        names = sorted(path.name for path in tmp_path.iterdir())
        data = bytearray((tmp_path / names[1]).read_bytes())
        data[-1] ^= 1
        (tmp_path / names[1]).write_bytes(data)

        tensorkeep.fetch(server.url + "sharded/", tmp_path, overwrite=True)

        large = {path for path, _, _, nbytes in asked() if nbytes > HEAD and path.endswith(".safetensors")}
        assert large == {f"/sharded/{names[1]}"}
        assert tensorkeep.verify(tmp_path).is_whole

    def test_a_file_that_was_changed_comes_again(self, server: Nginx, served: Path, tmp_path: Path) -> None:
        tensorkeep.fetch(server.url + "pickles/", tmp_path)
        status = (tmp_path / "pytorch_model.bin").stat()
        data = bytearray((tmp_path / "pytorch_model.bin").read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / "pytorch_model.bin").write_bytes(data)
        os.utime(tmp_path / "pytorch_model.bin", ns=(0, status.st_mtime_ns + 1))

        with pytest.raises(DestinationExistsError):  # it may be somebody's work
            tensorkeep.fetch(server.url + "pickles/", tmp_path)
        tensorkeep.fetch(server.url + "pickles/", tmp_path, overwrite=True)

        assert contents(tmp_path) == contents(served / "pickles")

    def test_pickles_are_not_put_beside_safetensors_that_would_hide_them(self, server: Nginx, tmp_path: Path) -> None:
        tensorkeep.save_checkpoint(weights(1), tmp_path)

        with pytest.raises(UnsupportedError, match="would be opened"):
            tensorkeep.fetch(server.url + "pickles/", tmp_path)

        assert_weights(tmp_path, 1)
        assert tensorkeep.fetch(server.url + "pickles/pytorch_model.bin", tmp_path).endswith("pytorch_model.bin")


class TestRefusals:
    @pytest.mark.parametrize(
        ("url", "kind", "text"),
        [
            ("nothing/", SourceMissingError, "no checkpoint"),
            ("nothing.safetensors", SourceMissingError, "no such file"),
            ("no/", AccessDeniedError, "403"),
            ("strange.safetensors", HeaderError, "HTML"),
            ("one/nothing.pt", SourceMissingError, "no such file"),
        ],
    )
    def test_what_is_no_checkpoint(self, server: Nginx, tmp_path: Path, url, kind, text) -> None:
        with pytest.raises(kind, match=text) as caught:
            tensorkeep.fetch(server.url + url, tmp_path / "new")

        assert server.url.rstrip("/") in str(caught.value)
        assert ".tensorkeep" not in str(caught.value)
        assert os.listdir(tmp_path) == []

    def test_a_shard_that_is_missing(self, served: Path, tmp_path: Path) -> None:
        copy = tmp_path / "served"
        shutil.copytree(served / "sharded", copy)
        name = min(path.name for path in copy.glob("*.safetensors"))
        (copy / name).unlink()
        with running_nginx(copy) as running, pytest.raises(SourceMissingError, match=name):
            tensorkeep.fetch(running.url, tmp_path / "new")

        assert os.listdir(tmp_path) == ["served"]

    def test_no_url_and_no_path(self, server: Nginx, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedError, match="not a URL"):
            tensorkeep.fetch(tmp_path, tmp_path / "new")
        with pytest.raises(UnsupportedError, match="local paths only"):
            tensorkeep.fetch(server.url, "s3://bucket/")
        with pytest.raises(UnsupportedError, match="several files go to a directory"):
            tensorkeep.fetch(server.url + "sharded/", tmp_path / "model.safetensors")
        with pytest.raises(SourceMissingError, match="Create its parent first"):
            tensorkeep.fetch(server.url + "sharded/", tmp_path / "a" / "b")
        (tmp_path / "file").touch()
        with pytest.raises(TransportError):
            tensorkeep.fetch(server.url + "sharded/", tmp_path / "file")
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize(
        "name", ["../out.safetensors", "a/.x.tensorkeep-staging/commit.json", "b:ad.safetensors"]
    )
    def test_an_index_that_names_what_lies_elsewhere(self, tmp_path: Path, name) -> None:
        index = json.dumps({"metadata": {}, "weight_map": {"a": name}}).encode()
        with (
            FaultServer({f"m/{INDEX}": index, f"m/{name}": b"x"}) as running,
            pytest.raises((UnsupportedError, FormatError)),
        ):
            tensorkeep.fetch(running.url + "m/", tmp_path / "new")

        assert os.listdir(tmp_path) == []


class TestDamage:
    def files(self, served: Path, folder: str) -> dict[str, bytes]:
        return {f"m/{name}": data for name, data in contents(served / folder).items()}

    def test_a_tensor_that_is_not_what_was_saved(self, served: Path, tmp_path: Path) -> None:
        tensorkeep.save_checkpoint(weights(1), tmp_path / "new", max_shard_size="1MB")
        files = self.files(served, "sharded")
        name = sorted(name for name in files if name.endswith("3.safetensors"))[0]
        damaged = bytearray(files[name])
        damaged[-5000] ^= 64
        with FaultServer(files | {name: bytes(damaged)}) as running:
            with pytest.raises(IntegrityError, match=name) as caught:
                tensorkeep.fetch(running.url + "m/", tmp_path / "new", overwrite=True)
            assert caught.value.tensor is not None
            assert_weights(tmp_path / "new", 1)
            assert tensorkeep.verify(tmp_path / "new").is_whole

            running.files[name] = files[name]
            tensorkeep.fetch(running.url + "m/", tmp_path / "new", overwrite=True)

        assert_weights(tmp_path / "new")
        assert sorted(os.listdir(tmp_path / "new")) == sorted(name[2:] for name in files if not name.endswith(".py"))

    def test_only_what_is_damaged_is_asked_for_again(self, served: Path, tmp_path: Path) -> None:
        """Bytes that were damaged on the way, of the same version."""
        files = {"model.safetensors": (served / "one" / "model.safetensors").read_bytes()}
        damaged = bytearray(files["model.safetensors"])
        damaged[-5000] ^= 64
        with FaultServer(files) as running:
            running.digests[id(damaged)] = bytes(damaged), running_digest(files["model.safetensors"])
            running.files["model.safetensors"] = damaged
            with pytest.raises(IntegrityError, match="w5") as caught:
                tensorkeep.fetch(remote(running.url + "model.safetensors", **QUICK), tmp_path)
            assert caught.value.tensor == "w5"
            running.files["model.safetensors"] = files["model.safetensors"]
            running.requests.clear()

            tensorkeep.fetch(remote(running.url + "model.safetensors", **QUICK), tmp_path)

            asked = sum(each.nbytes for each in running.requests)
        assert asked <= weights()["w5"].nbytes + 3 * HEAD
        assert_weights(tmp_path)

    def test_another_sha256_than_the_index_says(self, served: Path, tmp_path: Path) -> None:
        """Bytes between header and data, or after them, are in no digest of a tensor."""
        tensorkeep.save({"a": np.arange(3)}, tmp_path / "model.safetensors", digests=False)
        tensorkeep.add_sha256(tmp_path)
        files = {f"m/{name}": data for name, data in contents(tmp_path).items()}
        files["m/model.safetensors"] = files["m/model.safetensors"][:-1] + b"\x01"
        with FaultServer(files) as running, pytest.raises(IntegrityError, match="SHA-256"):
            tensorkeep.fetch(running.url + "m/", tmp_path / "new")

    def test_a_file_of_a_manifest(self, served: Path, tmp_path: Path) -> None:
        files = self.files(served, "run-5")
        files["m/inner/notes.txt"] = b"of the fun"
        with FaultServer(files) as running, pytest.raises(IntegrityError, match=r"notes\.txt"):
            tensorkeep.fetch(running.url + "m/", tmp_path / "new")

        assert os.listdir(tmp_path) == [".new.tensorkeep-fetch"], "what has come is kept"

    def test_a_storage_of_a_pickle(self, served: Path, tmp_path: Path) -> None:
        data = bytearray((served / "state.pt").read_bytes())
        data[len(data) // 2 + 2000] ^= 1
        with FaultServer({"state.pt": bytes(data)}) as running, pytest.raises(IntegrityError, match="CRC-32"):
            tensorkeep.fetch(running.url + "state.pt", tmp_path)

    def test_a_shard_of_another_save(self, served: Path, tmp_path: Path) -> None:
        files = self.files(served, "sharded")
        name = min(name for name in files if name.endswith(".safetensors"))
        tensorkeep.save_checkpoint(weights(1), tmp_path / "other", max_shard_size="1MB")
        files[name] = (tmp_path / "other" / name[2:]).read_bytes()
        with FaultServer(files) as running, pytest.raises(IntegrityError, match="another s"):
            tensorkeep.fetch(running.url + "m/", tmp_path / "new")

    def test_a_file_that_is_replaced_meanwhile(self, served: Path, tmp_path: Path) -> None:
        one, other = (served / "one" / "model.safetensors").read_bytes(), tmp_path / "other.safetensors"
        tensorkeep.save(weights(1), other)
        with FaultServer({"model.safetensors": one}) as running:
            running.faults.extend([None, None, Fault(swap=other.read_bytes())])
            with pytest.raises(SourceChangedError):
                tensorkeep.fetch(remote(running.url + "model.safetensors", connections=1), tmp_path / "new")
            tensorkeep.fetch(running.url + "model.safetensors", tmp_path / "new")

        assert_weights(tmp_path / "new", 1)


def running_digest(data: bytes) -> str:
    import hashlib

    return hashlib.md5(data).hexdigest()


class TestOneAtATime:
    def test_two_fetches(self, server: Nginx, tmp_path: Path) -> None:
        self._while_fetching(
            server, tmp_path, lambda: tensorkeep.fetch(server.url + "one/", tmp_path / "new"), "sharded/"
        )
        assert_weights(tmp_path / "new")

    def test_a_save_to_the_same_place(self, server: Nginx, tmp_path: Path) -> None:
        self._while_fetching(
            server, tmp_path, lambda: tensorkeep.save_checkpoint(weights(1), tmp_path / "new"), "sharded/"
        )
        assert_weights(tmp_path / "new")

    def test_a_save_of_a_folder_to_the_same_place(self, server: Nginx, tmp_path: Path) -> None:
        def save() -> None:
            with save_folder(tmp_path / "new"):
                pass

        self._while_fetching(server, tmp_path, save, "run-5/")
        assert verify_folder(tmp_path / "new") == []

    def _while_fetching(self, server: Nginx, tmp_path: Path, work: Any, url: str) -> None:
        errors: list[BaseException] = []

        def progress(done: int, total: int) -> None:
            if not errors:
                try:
                    work()
                except BaseException as error:
                    errors.append(error)

        tensorkeep.fetch(server.url + url, tmp_path / "new", progress=progress)
        assert isinstance(errors[0], BusyError)

    def test_a_fetch_during_a_save(self, server: Nginx, tmp_path: Path) -> None:
        errors: list[BaseException] = []

        def before_commit(_: object) -> None:
            try:
                tensorkeep.fetch(server.url + "sharded/", tmp_path / "new")
            except BaseException as error:
                errors.append(error)

        tensorkeep.save_checkpoint(weights(1), tmp_path / "new", before_commit=before_commit)
        assert isinstance(errors[0], BusyError)
        assert_weights(tmp_path / "new", 1)

    @pytest.mark.parametrize(("url", "call"), [("run-5/", "exchange"), ("sharded/", "sync_directory")])
    def test_a_last_step_that_fails_keeps_what_has_come(
        self, server: Nginx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked, url, call
    ) -> None:
        (tmp_path / "new").mkdir()
        module = _folder if call == "exchange" else _staging

        def fail(*_: object) -> bool:
            raise OSError(errno.EIO, "no")

        with monkeypatch.context() as patch:
            patch.setattr(module, call, fail)
            with pytest.raises(TransportError, match="no"):
                tensorkeep.fetch(server.url + url, tmp_path / "new")
        asked()

        tensorkeep.fetch(server.url + url, tmp_path / "new")

        assert all(span.startswith("bytes=0-") or nbytes < 10**5 for _, _, span, nbytes in asked())
        assert not [path for path in tmp_path.rglob("*") if ".tensorkeep-" in path.name]

    def test_what_the_callback_raises_ends_it_and_the_next_one_goes_on(
        self, server: Nginx, tmp_path: Path, asked
    ) -> None:
        class MadeUpError(Exception):
            pass

        def give_up(done: int, total: int) -> None:
            if done > total // 2:
                raise MadeUpError

        before = threading.active_count()
        with pytest.raises(MadeUpError):
            tensorkeep.fetch(remote(server.url + "sharded/", connections=2), tmp_path, progress=give_up)
        assert threading.active_count() == before
        asked()
        told: list[int] = []

        tensorkeep.fetch(server.url + "sharded/", tmp_path, progress=lambda done, total: told.append(done))

        assert told[0] > 0
        assert_weights(tmp_path)
