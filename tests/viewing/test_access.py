"""Who may look, and what every answer says to the browser."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.viewing import Viewer


@pytest.fixture
def client(view, tmp_path: Path):
    tensorkeep.save({"w": np.arange(6.0).reshape(2, 3)}, tmp_path / "a.safetensors")
    return view(tmp_path / "a.safetensors")


def status(url: str, path: str, method: str = "GET", **headers: str) -> int:
    """Ask exactly this, without what a library would change."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_every_answer_confines_the_page(client) -> None:
    for name in ("api/about", "api/tree?of=a", "api/nothing", "api/statistics?of=a&t=0", "nothing.js"):
        answer = client.request(name)

        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Server"] == "tensorkeep"


def test_what_is_no_request_gets_no_words(client) -> None:
    parts = urlsplit(client.url)
    for head in (f"GET {parts.path} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", f"GET {parts.path}" + "x" * 20_000):
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
            connection.sendall(head.encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))

        assert answer[8:13] == b" 400 "
        assert b"Content-Security-Policy: default-src 'none'" in answer
        assert b"Server: tensorkeep" in answer
        assert parts.path.strip("/").encode() not in answer


def test_connections_without_requests_make_room(client) -> None:
    parts = urlsplit(client.url)
    idle = [socket.create_connection((parts.hostname, parts.port), timeout=10) for _ in range(160)]
    idle[-1].sendall(b"GET /half HTTP")

    assert client.request("api/about").status == 200
    assert len([each for each in idle if not is_closed(each)]) < 130
    for each in idle:
        each.close()


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_without_the_secret_nobody_looks(client) -> None:
    secret = urlsplit(client.url).path

    assert status(client.url, f"{secret}api/about") == 200
    for path in ("/", "/api/about", f"{secret[:-2]}/api/about", f"{secret[:-1]}x/", "//", "/%00/"):
        assert status(client.url, path) == 403, path


def test_two_viewers_have_different_secrets(client, view, tmp_path: Path) -> None:
    assert urlsplit(view(tmp_path / "a.safetensors").url).path != urlsplit(client.url).path


def test_other_names_of_this_machine_are_refused(client) -> None:
    path = f"{urlsplit(client.url).path}api/about"

    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::", "localhost@evil.example"):
        assert status(client.url, path, Host=host) in {400, 421}, host
    for host in ("localhost", "127.0.0.1:1", "[::1]:5", "LOCALHOST."):
        assert status(client.url, path, Host=host) == 200, host


def test_pages_of_other_sites_are_refused(client) -> None:
    own = f"http://{urlsplit(client.url).netloc}"

    assert client.request("api/about", Origin=own).status == 200
    assert client.request("api/about", Sec_Fetch_Site="same-origin").status == 200
    for origin in ("null", "http://evil.example", own.replace("http", "https"), f"{own}1", "http://localhost"):
        assert client.request("api/about", Origin=origin).status == 403, origin
    for site in ("cross-site", "same-site"):
        assert client.request("api/about", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors").status == 403
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert client.request("", **link).status != 403
    assert client.request("", **link | {"Sec_Fetch_Dest": "iframe"}).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(client, method: str) -> None:
    assert client.request("api/about", method).status == 405


def test_head_has_no_body(client) -> None:
    for name in ("api/tree?of=a", "api/statistics?of=a&t=0"):
        answer = client.request(name, "HEAD")

        assert (answer.status, answer.data) == (200, b"")


def test_nothing_beside_the_page_is_served(client, tmp_path: Path) -> None:
    for name in (
        "../_viewer.py",
        "..%2f_viewer.py",
        "__init__.py",
        "/etc/passwd",
        "%2e%2e/_viewer.py",
        "api/../x.js",
    ):
        assert status(client.url, urlsplit(client.url).path + name) == 404, name


def test_the_address_without_its_last_slash_leads_to_the_page(client) -> None:
    answer = client.pool.request("GET", client.url.rstrip("/"), redirect=False)

    assert (answer.status, answer.headers["Location"]) == (308, urlsplit(client.url).path)


def test_what_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1)}, tmp_path / "a.safetensors")

    with pytest.raises(SourceMissingError):
        Viewer(tmp_path / "missing.safetensors")
    with pytest.raises(SourceMissingError):
        Viewer(tmp_path / "a.safetensors", tmp_path / "missing.safetensors")
    with pytest.raises(UnsupportedError, match="port"):
        Viewer(tmp_path / "a.safetensors", port=70_000)


def test_a_viewer_that_is_closed_frees_its_port(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1)}, tmp_path / "a.safetensors")
    with Viewer(tmp_path / "a.safetensors") as first:
        port = urlsplit(first.url).port
    with Viewer(tmp_path / "a.safetensors", port=port) as second:
        assert urlsplit(second.url).port == port
    Viewer(tmp_path / "a.safetensors", port=port).close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed the way Linux has it")
def test_a_viewer_that_is_closed_closes_its_files(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensorkeep.save({"w": np.ones(1)}, path)

    def is_open() -> bool:
        return str(path) in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}

    with Viewer(path) as viewer:
        assert is_open()
    assert viewer.url
    assert not is_open()
