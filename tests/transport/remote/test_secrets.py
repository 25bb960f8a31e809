"""Users, passwords, signatures and tokens are in no message, no repr, no warning and no pickled error."""

from __future__ import annotations

import pickle
import socket
import threading
import traceback
import warnings

import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import TensorkeepError
from tensorkeep.texts import redacted, shown_url
from tests.support.logs import logged
from tests.support.remote.fault_server import Fault, FaultServer

SECRETS = ("anna", "pass-w0rd", "sig-123", "token-456")
QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 0.5, "attempts": 2, "connections": 1}
FAULTS = [
    Fault(close=True),
    Fault(garbage=True),
    *[Fault(status=status) for status in (400, 401, 403, 404, 410, 412, 416, 418, 429, 500, 503)],
    Fault(cut_at=10),
    Fault(shifted_by=1),
    Fault(length_by=-5),
    Fault(total_by=1),
    Fault(whole=True),
    Fault(no_content_range=True),
    Fault(encoding="gzip"),
    Fault(redirect="ftp://anna:pass-w0rd@nowhere/?sig-123"),
    Fault(redirect="http://anna:pass-w0rd@127.0.0.1/?sig-123"),
    Fault(redirect="?again=token-456"),
    Fault(delay_s=0.7),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "x.safetensors"
    tensorkeep.save({"w": np.arange(50_000)}, path)
    return path.read_bytes()


@pytest.fixture
def server(data):
    with FaultServer({"x.safetensors": data, "broken.safetensors": b"<html>" * 9}) as running:
        yield running


def secret_path(server, name: str = "x.safetensors", **options):
    url = f"http://anna:pass-w0rd@{server.host}/{name}?X-Amz-Signature=sig-123&other=sig-123"
    return remote(url, headers={"X-Token": "token-456"}, **QUICK | {"head_nbytes": 4096} | options)


def assert_no_secrets(error: BaseException) -> None:
    said = "".join(traceback.format_exception(error))
    chain = [error, error.__cause__, *error.args]
    texts = [said, *map(str, chain), *map(repr, chain), repr(pickle.dumps(error))]
    assert isinstance(error, TensorkeepError)
    for secret in SECRETS:
        assert not [text for text in texts if secret in text]


@pytest.mark.parametrize("n_before", [0, 1], ids=["at-first", "later"])
@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_errors_of_every_kind(server, fault, n_before) -> None:
    server.faults.extend([None] * n_before + [fault] * 30)
    with logged() as text, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(TensorkeepError) as caught:
            tensorkeep.load(secret_path(server, whole_nbytes=0))

    assert_no_secrets(caught.value)
    for secret in SECRETS:
        assert secret not in text.getvalue() + "".join(str(each.message) for each in warned)


def test_headers_that_cannot_be_parsed_are_not_logged() -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:  # open also asks for files whose names begin with this one
            with listening.accept()[0] as client:
                if not client.recv(2**16):
                    return
                client.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nX-A: b\r\nLocation http://h/?sig-123\r\n\r\n")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with logged() as text, pytest.raises(TensorkeepError):
        tensorkeep.open(f"http://127.0.0.1:{listening.getsockname()[1]}/x.bin")
    socket.create_connection(listening.getsockname()).close()
    thread.join(10)
    listening.close()

    assert "404" in text.getvalue()
    assert "sig-123" not in text.getvalue()


def test_files_that_are_none(server) -> None:
    for name in (
        "broken.safetensors",
        "nothing.safetensors",
        "nothing/",
        "nothing.bin",
        "broken.safetensors.index.json",
    ):
        with pytest.raises(TensorkeepError) as caught:
            tensorkeep.open(secret_path(server, name))

        assert_no_secrets(caught.value)


@pytest.mark.parametrize("value", ["token-456\r\nX: y", "token-456 \N{SNOWMAN}"])
def test_headers_that_cannot_be_sent(server, value) -> None:
    with pytest.raises(TensorkeepError) as caught:
        tensorkeep.open(remote(server.url + "x.safetensors", headers={"X-Token": value}, **QUICK))

    assert_no_secrets(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://anna:pass-w0rd@[::1/x.safetensors",
        "http://anna:pass-w0rd@h:port/x.safetensors",
        "http://anna:pass-w0rd@/x",
    ],
)
def test_urls_that_are_none(url) -> None:
    with pytest.raises(TensorkeepError) as caught:
        tensorkeep.open(url)

    assert_no_secrets(caught.value)


def test_what_is_open_does_not_show_them(server) -> None:
    path = secret_path(server)
    with tensorkeep.open(path) as file:
        texts = [str(path), repr(path), repr(file), str(file.path), repr(file["w"]), repr(file.source)]
        texts += [repr(tensorkeep.verify(path)), file.source.name]

    assert not [text for text in texts for secret in SECRETS if secret in text]


def test_an_error_after_closing(server) -> None:
    file = tensorkeep.open(secret_path(server))
    tensor = file["w"]
    file.close()

    with pytest.raises(TensorkeepError, match="closed") as caught:
        tensor.load()

    assert_no_secrets(caught.value)


def test_credentials_reach_the_server_in_every_request(server) -> None:
    tensorkeep.load(secret_path(server))

    assert len(server.requests) >= 2
    for request in server.requests:
        assert request.query == "X-Amz-Signature=sig-123&other=sig-123"
        assert request.headers["x-token"] == "token-456"
        assert request.headers["authorization"].startswith("Basic ")


def test_another_server_gets_none_of_them(server, data) -> None:
    with FaultServer({"y.safetensors": data}) as other:
        server.faults.extend([Fault(redirect=f"{other.url}y.safetensors?own=1")] * 10)

        tensorkeep.load(secret_path(server))

        assert other.requests
        for request in other.requests:
            assert request.query == "own=1"
            assert not request.headers.keys() & {"authorization", "x-token", "referer", "cookie"}


def test_a_redirect_that_expires_is_asked_for_anew(server, data) -> None:
    with FaultServer({"y.safetensors": data}) as other:
        server.faults.extend([Fault(redirect=f"{other.url}y.safetensors?signature={n}") for n in range(3)])
        other.faults.extend([None, Fault(status=403)])

        with tensorkeep.open(secret_path(server)) as file:
            assert file["w"][40_000] == 40_000

        assert [request.query for request in other.requests] == ["signature=0", "signature=0", "signature=1"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://anna:pass-w0rd@h/x?sig-123#y", "https://h/x"),
        ("https://anna@h:1/x", "https://h:1/x"),
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("hf://org/model@main/x", "hf://org/model@main/x"),
        ("no url", "no url"),
        ("https://anna:pass@word@h/x", "https://h/x"),
        ("https://anna:pass/word@h/x?sig-123", "https://h/x"),
        ("https://h/it's.safetensors?sig-123", "https://h/it's.safetensors"),
        ('https://h/x?name="a"&sig-123', "https://h/x"),
        ("https:/anna:pass-w0rd@h/x?sig-123", "https:/h/x"),
        ("https://h/org@v1/x", "https://h/org@v1/x"),
        ("C:/Users/x@y", "C:/Users/x@y"),
    ],
)
def test_what_is_shown_of_a_url(text, shown) -> None:
    assert shown_url(text) == redacted(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("get https://anna:pass-w0rd@h/x?sig-123, failed", "get https://h/x failed"),
        ("'s3://me:a/b@c/x?sig-123' and http://h/y?sig-123", "'s3://c/x and http://h/y"),
    ],
)
def test_what_is_shown_of_a_text(text, shown) -> None:
    assert redacted(text) == shown
