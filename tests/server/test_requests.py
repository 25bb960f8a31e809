"""A real server, asked over the wire: files, ranges, versions, folders, methods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tensorkeep.server import Served, Server
from tensorkeep.server._access import Access
from tensorkeep.server._answers import Question, Site, answer_at_once, answer_to
from tensorkeep.server._body import FileBody
from tests.support.server.raw_http import connect, get, receive

SECURITY = {"x-content-type-options": "nosniff", "cache-control": "no-cache", "tensorkeep-server": "1"}


def bytes_of(served: Path) -> bytes:
    return served.joinpath("bytes").read_bytes()


def test_a_file(server: Server, served: Path) -> None:
    reply = get(server.url, "/bytes")

    assert (reply.status, reply.body, reply.is_whole) == (200, bytes_of(served), True)
    assert reply.headers["content-length"] == "256000"
    assert reply.headers["accept-ranges"] == "bytes"
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["etag"].startswith('"')
    assert "date" in reply.headers
    assert SECURITY.items() <= reply.headers.items()


def test_head_says_the_same_and_sends_nothing(server: Server) -> None:
    head = get(server.url, "/bytes", "HEAD", Range="bytes=0-1")
    whole = get(server.url, "/bytes")

    assert (head.status, head.body) == (200, b"")
    assert head.headers | {"date": ""} == whole.headers | {"date": ""}


@pytest.mark.parametrize("target", ["/", "/missing", "/sharded", "/sharded/"])
def test_head_of_what_is_no_file(server: Server, target: str) -> None:
    head, whole = get(server.url, target, "HEAD"), get(server.url, target)

    assert (head.status, head.body) == (whole.status, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("nbytes", [1, 100, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("start", [0, 1, 56_000])
def test_a_range(server: Server, served: Path, start: int, nbytes: int) -> None:
    reply = get(server.url, "/bytes", Range=f"bytes={start}-{start + nbytes - 1}")
    expected = bytes_of(served)[start : start + nbytes]

    assert (reply.status, reply.body, reply.is_whole) == (206, expected, True)
    assert reply.headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/256000"


@pytest.mark.parametrize("spans", [[(0, 9), (20, 29)], [(0, 99_999), (100_000, 100_001), (110_000, 255_999)]])
def test_several_ranges(server: Server, served: Path, spans: list[tuple[int, int]]) -> None:
    reply = get(server.url, "/bytes", Range="bytes=" + ",".join(f"{first}-{last}" for first, last in spans))

    assert (reply.status, reply.is_whole) == (206, True)
    boundary = reply.headers["content-type"].removeprefix("multipart/byteranges; boundary=")
    before, *parts, after = reply.body.split(f"\r\n--{boundary}".encode())
    assert (before, after) == (b"", b"--\r\n")
    assert "content-range" not in reply.headers
    for part, (first, last) in zip(parts, spans, strict=True):
        head, _, data = part.partition(b"\r\n\r\n")
        assert f"Content-Range: bytes {first}-{last}/256000".encode() in head
        assert data == bytes_of(served)[first : last + 1]


def test_a_range_that_is_not_there(server: Server) -> None:
    reply = get(server.url, "/bytes", Range="bytes=256000-")

    assert reply.status == 416
    assert reply.headers["content-range"] == "bytes */256000"


def test_an_empty_file(server: Server) -> None:
    assert get(server.url, "/empty")[:3:2] == (200, b"")
    assert get(server.url, "/empty", Range="bytes=0-99").headers["content-range"] == "bytes */0"


def test_versions_are_asked_for_by_their_tag(server: Server) -> None:
    tag = get(server.url, "/bytes", "HEAD").headers["etag"]

    known = get(server.url, "/bytes", If_None_Match=tag)
    assert (known.status, known.body, known.headers["etag"]) == (304, b"", tag)
    assert get(server.url, "/bytes", If_Match=tag, Range="bytes=0-1").status == 206
    assert get(server.url, "/bytes", If_Match='"other"', Range="bytes=0-1").status == 412
    assert get(server.url, "/bytes", If_Range=tag, Range="bytes=0-1").status == 206
    assert get(server.url, "/bytes", If_Range='"other"', Range="bytes=0-1").status == 200


def test_a_connection_is_used_again(server: Server, served: Path) -> None:
    with connect(server.url) as connection:
        for _ in range(3):
            for target in ("/bytes", "/missing", "/", "/config.json"):
                connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                assert receive(connection).is_whole


def test_requests_that_come_at_once_are_answered_in_their_order(server: Server, served: Path) -> None:
    request = b"GET /bytes HTTP/1.1\r\nHost: localhost\r\nRange: bytes=%d-%d\r\n\r\n"
    with connect(server.url) as connection:
        connection.sendall(b"".join(request % (n, n + 150_000) for n in range(5)))
        data = b""
        while data.count(b"HTTP/1.1 206") < 5 or not data.endswith(bytes_of(served)[4:150_005]):
            piece = connection.recv(2**20)
            assert piece
            data += piece

    for n in range(5):
        assert b"\r\n\r\n" + bytes_of(served)[n : n + 150_001] in data


def test_an_older_http(server: Server, served: Path) -> None:
    with connect(server.url) as connection:
        connection.sendall(b"GET /bytes HTTP/1.0\r\n\r\n")

        assert receive(connection).body == bytes_of(served)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_nothing_else_than_reading(server: Server, served: Path, method: str) -> None:
    before = bytes_of(served)

    reply = get(server.url, "/bytes", method, Content_Length="0")

    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
    assert bytes_of(served) == before


def test_what_browsers_would_run_is_no_page(server: Server) -> None:
    reply = get(server.url, "/page.html", Accept="text/html")

    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-security-policy"].startswith("sandbox")
    assert get(server.url, "/config.json").headers["content-type"] == "application/json"


def test_no_compressed_sibling_is_given_for_a_file(server: Server, served: Path) -> None:
    served.joinpath("config.json.gz").write_bytes(b"zipped")

    reply = get(server.url, "/config.json", Accept_Encoding="gzip, br")

    assert reply.body == b'{"a": 1}'
    assert "content-encoding" not in reply.headers


class TestFolders:
    def test_for_programs(self, server: Server, served: Path) -> None:
        reply = get(server.url, "/", Accept="application/json")
        listing = json.loads(reply.body)

        assert reply.headers["tensorkeep-directory"] == "1"
        assert reply.headers["content-type"] == "application/json"
        assert {"bytes", "sharded/", "a b/", "links/"} <= set(listing["names"])
        assert not {"pipe", ".hidden", ".git/", "secret.txt"} & set(listing["names"])
        assert {"name": "bytes", "nbytes": 256_000, "modified_s": int(served.joinpath("bytes").stat().st_mtime)} in (
            listing["entries"]
        )

    def test_all_that_is_listed_can_be_got(self, server: Server) -> None:
        for folder in ("/", "/links/", "/sharded/", "/a%20b/"):
            for name in json.loads(get(server.url, folder).body)["names"]:
                target = folder + "".join(f"%{byte:02x}" for byte in name.removesuffix("/").encode())
                assert get(server.url, target + "/" * name.endswith("/")).status == 200

    def test_for_people(self, server: Server) -> None:
        reply = get(server.url, "/a%20b/", Accept="text/html,*/*;q=0.8")
        page = reply.body.decode()

        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert '<a href="./50%25%20%C3%A9%20%3C%26%3E.txt">50% é &lt;&amp;&gt;.txt</a>' in page
        assert "3 bytes" in page
        assert "<script" not in page

    def test_what_folders_hold_is_said(self, server: Server) -> None:
        page = get(server.url, "/", Accept="text/html").body.decode()

        assert ">sharded/</a><td>checkpoint of 4 shards" in page
        assert ">single/</a><td>checkpoint<" in page
        assert json.loads(get(server.url, "/sharded/").body)["kind"] == "checkpoint of 4 shards"

    def test_a_path_without_its_slash_leads_there(self, server: Server) -> None:
        reply = get(server.url, "/links/folder?x=1")

        assert (reply.status, reply.headers["location"]) == (301, "./folder/")

    def test_a_file_is_no_folder(self, server: Server) -> None:
        assert get(server.url, "/bytes/").status == 404
        assert get(server.url, "/bytes/x").status == 404

    def test_steps_of_a_run(self, tmp_path: Path) -> None:
        for step in (5, 10):
            tmp_path.joinpath(f"step-{step:08}").mkdir()
        with Server(tmp_path, port=0) as server:
            assert json.loads(get(server.url).body)["kind"] == "2 steps of a run"


AS_NOBODY = """
import os, sys
from http import HTTPStatus
from tensorkeep.server._access import Access
from tensorkeep.server._answers import Question, Site, answer_to
site = Site(sys.argv[1], Access(None, False))
answer_to(Question("GET", "/", {"accept": "text/html"}), site)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for target in ("/secret", "/closed/", "/closed/x", "/open"):
    print(answer_to(Question("GET", target, {"accept": "text/html"}), site).status)
page = answer_to(Question("GET", "/", {"accept": "text/html"}), site)
print(page.status, b"closed" in page.body)
"""


def test_what_may_not_be_read_is_forbidden_and_stops_nothing_else() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        folder.joinpath("open").write_text("x")
        folder.joinpath("secret").touch(0o000)
        folder.joinpath("closed").mkdir(0o700)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, name], capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["403", "403", "403", "200", "200", "True"], done.stderr


class TestChanges:
    """Files that are replaced, cut and written to while they are sent."""

    NBYTES = 30_000_000

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "large"
        path.write_bytes(b"1" * self.NBYTES)
        return path

    @pytest.fixture
    def slow(self, file: Path):
        """A connection on which an answer has begun, and waits for its client."""
        with Server(file.parent, port=0) as server, connect(server.url) as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.2)
            yield connection

    def test_a_file_that_is_replaced(self, slow, file: Path) -> None:
        new = file.with_name("new")
        new.write_bytes(b"2" * self.NBYTES)
        os.replace(new, file)

        reply = receive(slow)

        assert reply.is_whole
        assert reply.body == b"1" * self.NBYTES

    def test_a_file_that_is_removed(self, slow, file: Path) -> None:
        file.unlink()

        assert receive(slow).body == b"1" * self.NBYTES

    def test_a_file_that_is_cut(self, slow, file: Path) -> None:
        os.truncate(file, self.NBYTES // 2)

        reply = receive(slow)

        assert reply.headers["content-length"] == str(self.NBYTES)
        assert not reply.is_whole
        assert reply.body == b"1" * len(reply.body)

    def test_a_file_that_is_written_to(self, slow, file: Path) -> None:
        with file.open("r+b") as writer:
            writer.seek(100)
            writer.write(b"2" * 100)

        reply = receive(slow)

        assert not reply.is_whole
        assert len(reply.body) == self.NBYTES - 1

    def test_a_file_that_grows(self, slow, file: Path) -> None:
        with file.open("ab") as writer:
            writer.write(b"2" * 100)

        reply = receive(slow)

        assert not reply.is_whole
        assert len(reply.body) == self.NBYTES - 1

    def test_a_file_that_is_overwritten_by_a_longer_one(self, slow, file: Path) -> None:
        file.write_bytes(b"2" * (self.NBYTES + 1))

        assert not receive(slow).is_whole

    def test_a_file_that_is_written_to_and_whose_time_is_put_back(self, slow, file: Path) -> None:
        before = file.stat()
        with file.open("r+b") as writer:
            writer.write(b"2" * self.NBYTES)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

        assert not receive(slow).is_whole

    def test_a_file_that_gets_another_name(self, slow, file: Path) -> None:
        os.link(file, file.with_name("other"))

        assert receive(slow).body == b"1" * self.NBYTES

    def test_the_next_answer_is_of_the_new_file(self, file: Path) -> None:
        with Server(file.parent, port=0) as server:
            before = get(server.url, "/large", "HEAD").headers["etag"]
            new = file.with_name("new")
            new.write_bytes(b"2" * 10)
            os.replace(new, file)

            after = get(server.url, "/large", If_Range=before, Range="bytes=0-4")

        assert (after.status, after.body) == (200, b"2" * 10)
        assert after.headers["etag"] != before

    def test_a_directory_that_is_made_anew(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        root.mkdir()
        with Server(root, port=0) as server:
            root.rmdir()
            assert get(server.url, "/file").status == 404
            root.mkdir()
            root.joinpath("file").write_bytes(b"new")
            assert get(server.url, "/file").body == b"new"


def test_each_request_is_told_of(served: Path) -> None:
    told: list[Served] = []
    with Server(served, port=0, on_served=told.append) as server:
        get(server.url, "/bytes?secret", Range="bytes=0-199999")
        get(server.url, "/bytes", "HEAD")
        get(server.url, "/missing")
        with connect(server.url) as connection:
            connection.sendall(b"GET /weights.safetensors HTTP/1.1\r\nHost: localhost\r\n\r\n")

    whole = [each for each in told if "weights" not in each.path]
    assert {(each.method, each.path, each.status) for each in whole} == {
        ("GET", "/bytes", 206),
        ("HEAD", "/bytes", 200),
        ("GET", "/missing", 404),
    }
    assert {each.method: each.nbytes for each in whole if each.path == "/bytes"} == {"GET": 200_000, "HEAD": 0}
    assert all(each.is_whole and each.client == "127.0.0.1" and each.seconds > 0 for each in whole)


@pytest.mark.parametrize(
    "target", ["/bytes", "/empty", "/config.json", "/links/out", "/nothing", "/bytes/", "/a%20b"]
)
@pytest.mark.parametrize("headers", [{}, {"range": "bytes=5-99"}, {"range": "bytes=300000-"}, {"if-none-match": "*"}])
def test_what_is_in_memory_is_answered_at_once(served: Path, target: str, headers: dict[str, str]) -> None:
    site = Site(str(served), Access(None, only_local=False), is_prompt=True)
    question = Question("GET", target, headers)

    slow, quick = answer_to(question, site), answer_at_once(question, site)

    if isinstance(slow.body, FileBody):
        with slow.body.file:
            assert isinstance(quick.body, FileBody)
            with quick.body.file:
                assert (quick.status, quick.headers) == (slow.status, slow.headers)
    else:
        assert quick == slow or (quick is None and slow.status in {200, 301, 404})


def test_what_is_not_in_memory_is_left_to_a_thread(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(str(served), Access(None, only_local=False), is_prompt=True)

    def wait(*_: object) -> int:
        raise BlockingIOError

    n_open = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "preadv", wait)
    for target in ("/config.json", "/", "/a%20b"):
        assert answer_at_once(Question("GET", target, {}), site) is None
    assert len(os.listdir("/proc/self/fd")) == n_open
    assert answer_at_once(Question("GET", "/config.json", {}), Site(str(served), site.access)) is None
