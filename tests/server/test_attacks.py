"""Clients that mean harm, or do it: paths that lead out, tokens, slow and silent connections, too many of them."""

from __future__ import annotations

import base64
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tensorkeep.errors import UnsupportedError
from tensorkeep.server import Server
from tests.support.server.raw_http import Reply, connect, get, receive, send

PATIENCE_S = 0.5


@pytest.fixture(scope="module")
def strict(served: Path) -> Iterator[Server]:
    """A server with few connections and little patience."""
    with Server(served, port=0, connections=4, patience_s=PATIENCE_S) as running:
        yield running


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("large")
    folder.joinpath("large").write_bytes(bytes(30_000_000))
    with Server(folder, port=0, connections=4, patience_s=PATIENCE_S) as running:
        yield running


class TestPaths:
    WAYS_OUT = (
        *("/../secret.txt", "/sharded/../../secret.txt", "/%2e%2e/secret.txt", "/%2e%2e%2fsecret.txt"),
        *("/..%2fsecret.txt", "/..%5csecret.txt", "/..\\secret.txt", "/....//secret.txt", "/.%00./secret.txt"),
        *("//etc/passwd", "/%2fetc/passwd", "/etc/passwd", "///etc/passwd", "/sharded/%2e%2e/%2e%2e/secret.txt"),
        *("/links/out", "/links/out-folder/secret.txt", "/links/relative-out", "/links/to-hidden", "/links/loop"),
        *("/links/up/../secret.txt", "/.hidden", "/.git/config", "/.git/", "/%2ehidden", "/links/up/.hidden"),
        *("/%252e%252e/secret.txt", "/%c0%ae%c0%ae/secret.txt", "/\xff\xfe", "/%uff0e%uff0e/secret.txt", "/pipe"),
        *(
            "/bytes%00.txt",
            "/bytes/",
            "/bytes/..",
            "/" + "a/" * 2000,
            "/" + "x" * 5000,
            "/" + "../" * 1000 + "etc/passwd",
        ),
        *(
            "http://localhost/../secret.txt",
            "http://localhost//etc/passwd",
            "/;/../secret.txt",
            "/?/../../secret.txt/..",
        ),
    )

    @pytest.mark.parametrize("target", WAYS_OUT)
    def test_nothing_outside_is_given(self, server: Server, target: str) -> None:
        reply = get(server.url, target.encode("latin-1"))

        assert reply.status in {400, 404} or target.startswith("/?")
        assert b"SECRET" not in reply.body
        assert b"root:" not in reply.body

    @pytest.mark.parametrize("target", ["bytes", "../secret.txt", "*", "", "file:///etc/passwd", "localhost:80"])
    def test_targets_that_are_no_paths(self, server: Server, target: str) -> None:
        assert get(server.url, target).status in {400, 404}


class TestRequests:
    @pytest.mark.parametrize(
        "request_",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
            b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        ],
    )
    def test_what_is_no_request_is_refused(self, server: Server, request_: bytes) -> None:
        assert send(server.url, request_).status in {400, 0}
        assert get(server.url, "/config.json").status == 200

    def test_the_body_of_a_request_is_no_second_request(self, server: Server) -> None:
        hidden = b"GET /bytes HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connect(server.url) as connection:
            connection.sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden
            )
            assert receive(connection).status == 405
            connection.sendall(b"GET /config.json HTTP/1.1\r\nHost: localhost\r\n\r\n")

            assert receive(connection).body == b'{"a": 1}'


def basic(password: str, user: str = "") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def guarded(served: Path) -> Iterator[Server]:
    with Server(served, port=0, token="t0ken:/+=") as running:
        yield running


class TestTokens:
    @pytest.mark.parametrize(
        "credentials", ["Bearer t0ken:/+=", "bearer  t0ken:/+=", basic("t0ken:/+="), basic("t0ken:/+=", "anybody")]
    )
    def test_who_knows_it_may_read(self, guarded: Server, credentials: str) -> None:
        assert get(guarded.url, "/config.json", Authorization=credentials).body == b'{"a": 1}'
        assert get(guarded.url, "/config.json", Authorization=credentials, Host="weights.lab:80").status == 200

    @pytest.mark.parametrize(
        "credentials",
        [
            *("", "Bearer", "Bearer ", "Bearer t0ken", "Bearer t0ken:/+=x", "t0ken:/+=", "Token t0ken:/+=", "Basic"),
            *("Basic t0ken:/+=", basic("t0ken"), basic(""), basic("x", "t0ken:/+="), "Basic ////", "Bearer \xe9"),
            "Bearer t0ken:/+=, Bearer x",
        ],
    )
    @pytest.mark.parametrize("target", ["/config.json", "/", "/missing", "/../secret.txt"])
    def test_who_does_not_learns_nothing(self, guarded: Server, credentials: str, target: str) -> None:
        reply = get(guarded.url, target, Authorization=credentials)

        assert reply.status == 401
        assert "Bearer" in reply.headers["www-authenticate"]
        assert "Basic" in reply.headers["www-authenticate"]

    @pytest.mark.parametrize("query", ["token=t0ken:/%2B=", "access_token=t0ken:/+="])
    def test_it_does_not_belong_in_a_url(self, guarded: Server, query: str) -> None:
        assert get(guarded.url, f"/config.json?{query}").status == 401

    @pytest.mark.parametrize("token", ["", "two words", "é", "a\n"])
    def test_tokens_that_cannot_be_sent(self, served: Path, token: str) -> None:
        with pytest.raises(UnsupportedError, match="cannot be sent in a header"):
            Server(served, port=0, token=token)


class TestNames:
    """A page on the web can give its own name this machine's address, and ask for files in its visitor's browser."""

    @pytest.mark.parametrize(
        "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "x.localhost", "127.0.0.2"]
    )
    def test_those_of_this_machine(self, server: Server, host: str) -> None:
        assert get(server.url, "/config.json", Host=host).status == 200

    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "", "[::1", "localhost, x"]
    )
    def test_others(self, server: Server, host: str) -> None:
        assert get(server.url, "/config.json", Host=host).status == 421

    @pytest.mark.parametrize("host", ["0.0.0.0", ""])
    def test_the_network_is_served_with_a_token_only(self, served: Path, host: str) -> None:
        with pytest.raises(UnsupportedError, match="without a token, only clients on this machine are served"):
            Server(served, host=host, port=0)
        with Server(served, host=host, port=0, token="x") as server:
            url = server.url.replace(socket.gethostname(), "127.0.0.1")
            assert get(url, "/config.json").status == 401
        with Server(served, host=host, port=0, public=True) as server:
            url = server.url.replace(socket.gethostname(), "127.0.0.1")
            assert get(url, "/config.json", Host="weights.lab").status == 200


def ended_after(connection: socket.socket) -> float:
    """Return the seconds until the server closes a connection."""
    begin = time.monotonic()
    try:
        while connection.recv(2**20):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - begin


class TestPatience:
    @pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
    def test_a_client_that_asks_for_nothing(self, strict: Server, sent: bytes) -> None:
        with connect(strict.url) as connection:
            connection.sendall(sent)

            assert PATIENCE_S / 2 < ended_after(connection) < 4 * PATIENCE_S

    def test_a_client_that_asks_byte_by_byte(self, strict: Server) -> None:
        with connect(strict.url) as connection:
            begin = time.monotonic()
            with suppress(ConnectionError):
                while time.monotonic() - begin < 10 * PATIENCE_S:
                    connection.sendall(b"X")
                    time.sleep(0.05)

        assert time.monotonic() - begin < 4 * PATIENCE_S

    def test_a_second_request_that_does_not_come(self, strict: Server) -> None:
        with connect(strict.url) as connection:
            connection.sendall(b"GET /config.json HTTP/1.1\r\nHost: localhost\r\n\r\nGET /")
            assert receive(connection).status == 200

            assert ended_after(connection) < 5 * PATIENCE_S

    def test_a_client_that_takes_nothing(self, large: Server) -> None:
        with connect(large.url) as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(3 * PATIENCE_S)

            assert not receive(connection).is_whole

    def test_a_client_that_asks_on_and_takes_nothing(self, large: Server) -> None:
        asked = b"GET /large HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-60000\r\n\r\n"
        with connect(large.url) as connection:
            connection.settimeout(2 * PATIENCE_S)
            n_asked = 0
            with suppress(OSError):  # the connection is cut, or nothing more is read from it
                while n_asked < 100_000:
                    connection.sendall(asked)
                    n_asked += 1

            assert n_asked < 100_000
            assert get(large.url, "/large", Range="bytes=0-0").status == 206

    def test_a_client_that_asks_for_no_bodies_and_takes_nothing(self, large: Server) -> None:
        before = n_descriptors()
        with connect(large.url) as connection:
            connection.settimeout(2 * PATIENCE_S)
            with suppress(OSError):
                for _ in range(1000):
                    connection.sendall(b"HEAD /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)

            assert settles(lambda: n_descriptors() <= before + 1)

    def test_a_client_that_is_slow_gets_all(self, large: Server) -> None:
        with connect(large.url) as connection:
            connection.settimeout(None)  # so that reads are as long as they say
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begin = time.monotonic()
            n_come = 0
            while n_come < 30_000_000:
                piece = connection.recv(2_000_000, socket.MSG_WAITALL)
                assert piece
                n_come += len(piece)
                time.sleep(PATIENCE_S / 5)

        assert time.monotonic() - begin > 2 * PATIENCE_S

    def test_a_client_that_says_it_will_ask_no_more_gets_all(self, large: Server) -> None:
        with connect(large.url) as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.1)
            connection.shutdown(socket.SHUT_WR)

            assert receive(connection).is_whole


class TestMany:
    def test_who_asks_for_nothing_gives_way(self, strict: Server) -> None:
        idle = [connect(strict.url) for _ in range(12)]
        try:
            assert [get(strict.url, "/config.json").status for _ in range(8)] == [200] * 8
        finally:
            for connection in idle:
                connection.close()

    def test_where_all_are_busy_others_are_told_to_come_again(self, tmp_path: Path) -> None:
        tmp_path.joinpath("large").write_bytes(bytes(30_000_000))
        with Server(tmp_path, port=0, connections=4, patience_s=60) as patient:
            url = patient.url
            busy = [connect(url) for _ in range(4)]
            try:
                for connection in busy:
                    connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert all(connection.recv(1, socket.MSG_PEEK) for connection in busy)  # their answers have begun

                refused = [get(url, "/large", Range="bytes=0-0") for _ in range(3)]

                assert [reply.status for reply in refused] == [503] * 3
                assert {reply.headers["retry-after"] for reply in refused} == {"1"}
                assert all(receive(connection).is_whole for connection in busy)
            finally:
                for connection in busy:
                    connection.close()
            assert settles(lambda: get(url, "/large", Range="bytes=0-0").status == 206)

    def test_far_too_many_at_once_cost_no_descriptors(self, large: Server) -> None:
        before = n_descriptors()
        crowd = [connect(large.url) for _ in range(300)]
        for connection in crowd:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1)
        n_held = n_descriptors() - before - len(crowd)
        for connection in crowd:
            connection.close()

        assert n_held <= 3 * 4 + 64 + 4
        assert settles(lambda: n_descriptors() <= before + 4)
        assert get(large.url, "/large", Range="bytes=0-0").status == 206

    def test_two_hundred_clients_side_by_side(self, server: Server, served: Path) -> None:
        expected = served.joinpath("bytes").read_bytes()
        before = n_descriptors()
        replies: list[Reply] = []

        def ask(number: int) -> None:
            with connect(server.url, 30) as connection:
                for _ in range(3):
                    start = number * 500
                    connection.sendall(
                        b"GET /bytes HTTP/1.1\r\nHost: localhost\r\nRange: bytes=%d-%d\r\n\r\n"
                        % (start, start + 99_999)
                    )
                    reply = receive(connection)
                    assert reply.body == expected[start : start + 100_000]
                    replies.append(reply)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [reply.status for reply in replies] == [206] * 600
        assert settles(lambda: n_descriptors() <= before)


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def settles(is_done) -> bool:
    """Wait a little for something to become true."""
    for _ in range(400):
        if is_done():
            return True
        time.sleep(0.05)
    return False


class TestEnd:
    def test_answers_under_way_are_cut_and_nothing_is_left(self, large: Server, tmp_path: Path) -> None:
        tmp_path.joinpath("large").write_bytes(bytes(30_000_000))
        before, n_threads = n_descriptors(), threading.active_count()
        with Server(tmp_path, port=0) as server:
            connections = [connect(server.url) for _ in range(10)]
            for connection in connections[:5]:
                connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.2)
            begin = time.monotonic()
        took_s = time.monotonic() - begin

        assert took_s < 1
        assert not any(receive(connection).is_whole for connection in connections)
        for connection in connections:
            connection.close()
        with pytest.raises(ConnectionRefusedError):
            connect(server.url)
        assert settles(lambda: n_descriptors() <= before)
        assert settles(lambda: threading.active_count() <= n_threads)

    def test_the_port_can_be_used_at_once(self, served: Path) -> None:
        with Server(served, port=0) as server:
            get(server.url, "/bytes")
            port = int(server.url.rpartition(":")[2].rstrip("/"))
        with Server(served, port=port) as server:
            assert get(server.url, "/config.json").status == 200

    def test_a_server_that_never_began(self, served: Path) -> None:
        before = n_descriptors()
        Server(served, port=0).close()

        assert n_descriptors() == before

    def test_one_that_ends_by_an_error(self, served: Path) -> None:
        with pytest.raises(ZeroDivisionError), Server(served, port=0) as server:
            1 / 0  # noqa: B018
        with pytest.raises(ConnectionRefusedError):
            connect(server.url)
