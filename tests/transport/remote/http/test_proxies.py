"""Proxies that the environment names, and TLS, with and without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import AccessDeniedError, TransportError
from tests.support.logs import logged
from tests.support.remote.fault_server import FaultServer
from tests.support.remote.proxies import Proxy, make_certificate, running_proxy, running_tls

W = np.arange(20_000, dtype=np.int32)
QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 5.0, "attempts": 2, "connections": 1}
SMALL = QUICK | {"head_nbytes": 512}
SECRETS = ("anna", "pass-w0rd", "sig-123", "token-456")
BASIC = "Basic YW5uYTpwYXNzLXcwcmTDqQ=="
"""Of `anna` and `pass-w0rdé`."""


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({"x.safetensors": safetensors.numpy.save({"w": W})}) as running:
        yield running


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with running_proxy() as running:
        monkeypatch.setenv("http_proxy", running.host)
        monkeypatch.setenv("https_proxy", running.url)
        yield running


@pytest.fixture
def secure(server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the server with TLS in front of it, whose certificate is trusted."""
    from tensorkeep.transport.remote.http import _connections

    certificate = make_certificate(tmp_path / "certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    _connections._tls.cache_clear()
    with running_tls(int(server.host.rpartition(":")[2]), certificate) as port:
        yield f"https://127.0.0.1:{port}/"
    _connections._tls.cache_clear()


def test_http_through_a_proxy(server: FaultServer, proxy: Proxy) -> None:
    with tensorkeep.open(remote(f"{server.url}x.safetensors?sig-123", headers={"X-Own": "1"}, **SMALL)) as file:
        assert np.array_equal(file["w"].load(), W)

    assert len(proxy.heads) == len(server.requests) >= 2
    assert {head.split("\r\n")[0] for head in proxy.heads} == {f"GET {server.url}x.safetensors?sig-123 HTTP/1.1"}
    assert all(request.headers["x-own"] == "1" for request in server.requests)
    assert all("tensorkeep-target" not in request.headers for request in server.requests)


def test_https_through_a_tunnel(server: FaultServer, secure: str, proxy: Proxy) -> None:
    with tensorkeep.open(remote(f"{secure}x.safetensors?sig-123", headers={"X-Own": "1"}, **SMALL)) as file:
        assert np.array_equal(file["w"][50:60], W[50:60])
        assert np.array_equal(file["w"].load(), W)

    assert len(proxy.heads) == 1, "one tunnel for all requests"
    assert proxy.heads[0].startswith(f"CONNECT {secure.split('/')[2]} ")
    assert "X-Own" not in proxy.heads[0]
    assert {request.query for request in server.requests} == {"sig-123"}


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_password_of_a_proxy(
    server: FaultServer, secure: str, proxy: Proxy, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.password = BASIC
    url = remote((server.url if scheme == "http" else secure) + "x.safetensors", **SMALL)
    with pytest.raises(AccessDeniedError if scheme == "http" else TransportError):
        tensorkeep.load(url)
    monkeypatch.setenv(f"{scheme}_proxy", f"http://anna:pass-w0rd%C3%A9@{proxy.host}")

    # another header, so that it is another store, with connections of its own
    assert np.array_equal(tensorkeep.load(remote(str(url), headers={"X-Own": "1"}, **SMALL))["w"], W)
    assert all("proxy-authorization" not in request.headers for request in server.requests if scheme == "https")


def test_no_proxy(server: FaultServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    assert np.array_equal(tensorkeep.load(remote(f"{server.url}x.safetensors", **SMALL))["w"], W)
    assert proxy.heads == []


def test_a_proxy_that_is_not_there(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://anna:pass-w0rd@127.0.0.1:1", "socks9://anna:pass-w0rd@127.0.0.1:1"):
        monkeypatch.setenv("http_proxy", url)
        with pytest.raises(TransportError) as caught:
            tensorkeep.load(remote(f"{server.url}x.safetensors?sig-123", **SMALL))

        assert not [secret for secret in SECRETS if secret in str(caught.value)]


def test_a_certificate_that_is_not_trusted(server: FaultServer, tmp_path: Path) -> None:
    port = int(server.host.rpartition(":")[2])
    with (
        running_tls(port, make_certificate(tmp_path / "certificate")) as own,
        pytest.raises(TransportError, match=r"certificate is not trusted.*SSL_CERT_FILE"),
    ):
        tensorkeep.load(remote(f"https://127.0.0.1:{own}/x.safetensors", **SMALL))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_logs_have_no_secrets(server: FaultServer, secure: str, proxy: Proxy, scheme: str, monkeypatch) -> None:
    """urllib3 logs the URL of each request; what comes after the path must not be in it."""
    monkeypatch.setenv(f"{scheme}_proxy", f"http://anna:pass-w0rd@{proxy.host}")
    origin = (server.url if scheme == "http" else secure).replace("://", "://anna:pass-w0rd@")
    path = remote(f"{origin}x.safetensors?sig-123", headers={"X-Token": "token-456"}, **SMALL)

    with logged() as text:
        assert np.array_equal(tensorkeep.load(path)["w"], W)

    assert "x.safetensors" in text.getvalue()
    for secret in SECRETS:
        assert secret not in text.getvalue()
    assert all(request.query == "sig-123" for request in server.requests)
