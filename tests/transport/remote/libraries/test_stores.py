"""Buckets of S3, file systems of fsspec, and stores that the caller has made."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import obstore.exceptions
import obstore.store
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import (
    AccessDeniedError,
    SourceChangedError,
    SourceMissingError,
    TransientError,
    TransportError,
    UnsupportedError,
)
from tests.support.remote.s3_bucket import KEYS, Bucket

WEIGHTS = {
    "large": np.random.default_rng(0).standard_normal((200, 3000), np.float32),
    "small": np.arange(12, dtype=np.int16).reshape(3, 4),
}


def assert_weights(found) -> None:
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], WEIGHTS[name]) for name in WEIGHTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    tensorkeep.save(WEIGHTS, root / "model.safetensors")
    tensorkeep.save_checkpoint(WEIGHTS, root / "sharded", max_shard_size="50KB")
    return root


@pytest.fixture(scope="module")
def s3(folder):
    with Bucket.served() as served:
        served.client.create_bucket(Bucket="versions")
        for path in (path for path in folder.rglob("*") if path.is_file()):
            for bucket in ("models", "versions"):
                served.client.upload_file(str(path), bucket, f"base-1.5/{path.relative_to(folder).as_posix()}")
        served.client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        yield served


class TestS3:
    @pytest.fixture
    def at(self, s3):
        return s3.remote

    def test_a_file(self, at) -> None:
        path = at("s3://models/base-1.5/model.safetensors")

        assert_weights(tensorkeep.load(path))
        assert np.array_equal(tensorkeep.open(path)["large"][7:9, ::5], WEIGHTS["large"][7:9, ::5])
        assert tensorkeep.verify(path).is_whole

    @pytest.mark.parametrize("name", ["sharded/", "sharded", "sharded/model.safetensors.index.json"])
    def test_a_directory(self, at, name) -> None:
        with tensorkeep.open(at(f"s3://models/base-1.5/{name}")) as checkpoint:
            assert len(checkpoint.shards) == 2
            assert_weights(checkpoint.load())

    def test_a_directory_whose_name_has_a_dot(self, at) -> None:
        assert_weights(tensorkeep.load(at("s3://models/base-1.5")))

    def test_the_environment_says_where_and_who(self, s3, monkeypatch) -> None:
        for name, value in (("ENDPOINT_URL", s3.url), ("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "so-secret")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_REGION", "us-east-1")

        assert_weights(tensorkeep.load("s3://models/base-1.5/sharded/"))

    def test_what_is_missing(self, at) -> None:
        with pytest.raises(SourceMissingError, match="no such file"):
            tensorkeep.open(at("s3://models/nothing.safetensors"))
        with pytest.raises(SourceMissingError, match="no checkpoint"):
            tensorkeep.open(at("s3://models/nothing/"))
        with pytest.raises(SourceMissingError):
            tensorkeep.open(at("s3://no-such-bucket/model.safetensors"))
        with pytest.raises(TransportError):
            tensorkeep.open(at("s3://no-such-bucket/model/"))

    def test_a_file_that_is_replaced(self, s3, at, folder) -> None:
        with tensorkeep.open(at("s3://models/base-1.5/model.safetensors", head_nbytes=8)) as file:
            s3.client.put_object(Bucket="models", Key="base-1.5/model.safetensors", Body=b"x" * 10**6)
            try:
                with pytest.raises(SourceChangedError):
                    file["large"].load()
            finally:
                s3.client.upload_file(str(folder / "model.safetensors"), "models", "base-1.5/model.safetensors")

    def test_a_version_that_the_bucket_keeps_can_still_be_read(self, s3, at, folder) -> None:
        key = {"Bucket": "versions", "Key": "base-1.5/model.safetensors"}
        s3.client.upload_file(str(folder / "model.safetensors"), *key.values())
        with tensorkeep.open(at("s3://versions/base-1.5/model.safetensors", head_nbytes=8)) as file:
            s3.client.put_object(**key, Body=b"another")

            assert_weights(file.load())

        s3.client.delete_object(**key)
        with pytest.raises(SourceMissingError):
            tensorkeep.open(at("s3://versions/base-1.5/model.safetensors"))

    def test_a_presigned_url(self, s3, at) -> None:
        url = s3.client.generate_presigned_url(
            "get_object", Params={"Bucket": "models", "Key": "base-1.5/model.safetensors"}, ExpiresIn=600
        )

        assert "Signature" in url
        assert_weights(tensorkeep.load(url))

    def test_a_store_that_the_caller_made(self, s3) -> None:
        store = obstore.store.S3Store("models", endpoint=s3.url, client_options={"allow_http": True}, **KEYS)

        assert_weights(tensorkeep.load(remote(store, "base-1.5/model.safetensors")))
        assert_weights(tensorkeep.load(remote(store, "base-1.5/sharded/")))

    def test_options_that_nobody_knows(self, at) -> None:
        with pytest.raises(UnsupportedError):
            tensorkeep.open(at("s3://models/x.safetensors", colour="green"))

    def test_no_credentials(self, monkeypatch) -> None:
        def ask(*_, **__):
            raise obstore.exceptions.GenericError("Error performing PUT http://169.254.169.254/latest/api/token")

        monkeypatch.setattr(obstore, "get", ask)
        with pytest.raises(TransientError, match=r"environment has no credentials.*Set them in the environment"):
            tensorkeep.open(remote("s3://models/x.safetensors", attempts=1, region="us-east-1"))

    def test_wrong_credentials(self) -> None:
        code = f"""
import tensorkeep
from tensorkeep import remote
import boto3, moto.server, requests
from moto.core import set_initial_no_auth_action_count
server = moto.server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
url = "http://%s:%s" % server.get_host_and_port()
boto3.client("s3", endpoint_url=url, **dict(region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
             ).create_bucket(Bucket="models")
requests.post(url + "/moto-api/reset-auth", data="0")
try:
    tensorkeep.open(remote("s3://models/x.safetensors", endpoint=url, **{KEYS!r}))
except tensorkeep.errors.AccessDeniedError as error:
    print("denied", error)
server.stop()
"""
        environment = os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )

        assert done.stdout.startswith("denied"), done.stdout + done.stderr
        assert "403" in done.stdout
        assert "so-secret" not in done.stdout


class TestFileSystems:
    @pytest.fixture
    def memory(self, folder):
        files = fsspec.filesystem("memory")
        files.put(f"{folder}/", "/models/", recursive=True)
        yield files
        files.rm("/models", recursive=True)

    @pytest.mark.parametrize("name", ["model.safetensors", "sharded/", "sharded"])
    def test_memory(self, memory, name) -> None:
        assert_weights(tensorkeep.load(f"memory://models/{name}"))
        assert_weights(tensorkeep.load(remote(memory, f"models/{name}")))

    def test_files(self, folder) -> None:
        assert_weights(tensorkeep.load(f"file://{folder}/sharded/"))
        assert_weights(tensorkeep.load(f"file://{folder}/model.safetensors"))

    def test_a_file_that_is_replaced(self, memory) -> None:
        with tensorkeep.open(remote("memory://models/model.safetensors", head_nbytes=8)) as file:
            memory.pipe("/models/model.safetensors", b"x" * 10**6)

            with pytest.raises(SourceChangedError):
                file["large"].load()

    def test_what_is_missing(self, memory) -> None:
        with pytest.raises(SourceMissingError):
            tensorkeep.open("memory://models/nothing.safetensors")
        with pytest.raises(SourceMissingError):
            tensorkeep.open("memory://models/nothing/")

    def test_a_scheme_that_nobody_knows(self) -> None:
        with pytest.raises(UnsupportedError, match="no installed library reads carrier-pigeon"):
            tensorkeep.open("carrier-pigeon://models/model.safetensors")

    def test_a_url_inside_another(self) -> None:
        with pytest.raises(UnsupportedError, match="URLs inside others are not supported"):
            tensorkeep.open("zip://model.safetensors::https://example.org/model.zip")

    @pytest.mark.parametrize("url", ["https://", "s3://", "gs:///model.safetensors", "http://host:port/x"])
    def test_a_url_without_a_server_or_bucket(self, url) -> None:
        with pytest.raises(UnsupportedError, match="not a complete URL") as caught:
            tensorkeep.open(url)
        assert caught.value.path == url

    def test_a_server_that_cannot_be_reached(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"ftp://127.0.0.1:{server.getsockname()[1]}/models/model.safetensors"
        tensorkeep.save({"x": np.ones(3)}, tmp_path / "model.safetensors")
        for attempt in (
            lambda: tensorkeep.open(url),
            lambda: tensorkeep.save_checkpoint({"x": np.ones(3)}, url),
            lambda: tensorkeep.push(tmp_path / "model.safetensors", url),
        ):
            with pytest.raises(TransportError, match="the server cannot be reached") as caught:
                attempt()
            assert url in str(caught.value)
            assert "refused" in str(caught.value)

    def test_the_hub_where_there_is_no_network(self) -> None:
        assert os.environ.get("HF_HUB_OFFLINE", "1") == "1"
        code = """
import tensorkeep
try:
    tensorkeep.open(tensorkeep.remote("hf://org/model", attempts=2, pause_s=0.01))
except tensorkeep.errors.TransportError as error:
    print(error)
"""
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            check=False,
        )

        assert "offline" in done.stdout.lower(), done.stdout + done.stderr
        assert "hf://org/model" in done.stdout


def test_a_store_travels_to_another_process(folder) -> None:
    local = obstore.store.LocalStore(str(folder))
    with tensorkeep.open(remote(local, "model.safetensors")) as file:
        copy = pickle.loads(pickle.dumps(file["large"]))

        assert np.array_equal(copy[3], WEIGHTS["large"][3])


def test_neither_a_url_nor_a_store() -> None:
    for nothing in ("models/model.safetensors", 5, object()):
        with pytest.raises(UnsupportedError):
            remote(nothing)


def test_access_denied_is_what_python_calls_it() -> None:
    assert issubclass(AccessDeniedError, PermissionError)


def test_a_file_that_is_written_over_in_place(tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.zeros(400_000, np.uint8)}, path)
    with tensorkeep.open(remote(f"file://{path}", head_nbytes=1024)) as file:
        with path.open("r+b") as again:
            again.seek(200_000)
            again.write(b"1")
        with pytest.raises(SourceChangedError):
            file["w"].load()


def test_a_folder_with_a_manifest(tmp_path) -> None:
    with tensorkeep.checkpoint.save_folder(tmp_path / "run") as staging:
        tensorkeep.save(WEIGHTS, f"{staging}/model.safetensors")
        with open(f"{staging}/config.json", "w") as file:
            file.write("{}")
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/run/", "/with-manifest/", recursive=True)
    try:
        found = tensorkeep.verify("memory://with-manifest/")
        assert (found.is_whole, found.n_others, found.n_checked) == (True, 1, 2)

        memory.pipe("/with-manifest/config.json", b"{ ")
        assert [finding.shard for finding in tensorkeep.verify("memory://with-manifest/").findings] == ["config.json"]
        memory.rm("/with-manifest/config.json")
        assert tensorkeep.verify("memory://with-manifest/").findings[0].kind == "missing"
    finally:
        memory.rm("/with-manifest", recursive=True)
