"""`tensorkeep serve`, as people run it: what it says, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tensorkeep.cli import main
from tests.support import ROOT
from tests.support.server.raw_http import connect, get, receive

COMMAND = [sys.executable, "-m", "tensorkeep", "serve"]


class Running:
    """The command, which has said where it serves."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        self.line = line
        self.url = re.search(r"http://\S+", line)[0]

    def end(self, number: int = signal.SIGINT) -> tuple[int, list[str], str]:
        """Send a signal; return the exit code, what was printed since the first line, and what went wrong."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=10)
        return self.process.returncode, output.splitlines(), errors


@contextmanager
def running(*arguments: str, **variables: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | variables,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(process.communicate()[1])
        yield Running(process, line)
    finally:
        process.kill()
        process.communicate()


def test_a_line_for_each_request(served: Path) -> None:
    with running(str(served)) as command:
        assert command.line == f"serving {served} at {command.url}\n"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", command.url)
        with connect(command.url) as connection:
            for request in (
                b"GET /bytes HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-99999",
                b"HEAD /bytes?token=secret HTTP/1.1\r\nHost: localhost",
                b"GET /a%20b/%1b%5b31m HTTP/1.1\r\nHost: localhost",
                b"GET /missing HTTP/1.1\r\nHost: localhost",
            ):
                connection.sendall(request + b"\r\n\r\n")
                receive(connection, request.split()[0].decode())
        time.sleep(0.2)
        code, lines, errors = command.end()

    assert (code, errors) == (0, "")
    patterns = [
        r"\d\d:\d\d:\d\d  206   100 kB +\d[\d.]* \wB/s  /bytes  127\.0\.0\.1",
        r"\d\d:\d\d:\d\d  200 +HEAD /bytes  127\.0\.0\.1",
        r"\d\d:\d\d:\d\d  404 +14 B +\S+ k?B/s  /a b/\\x1b\[31m  127\.0\.0\.1",
        r"\d\d:\d\d:\d\d  404 +14 B +\S+ k?B/s  /missing  127\.0\.0\.1",
        r"served 4 requests, 100 kB",
    ]
    assert len(lines) == len(patterns)
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_and_by_itself(tmp_path: Path, number: int) -> None:
    tmp_path.joinpath("large").write_bytes(bytes(30_000_000))
    with running(str(tmp_path), "--quiet") as command, connect(command.url) as busy, connect(command.url):
        busy.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        busy.recv(100)
        begin = time.monotonic()
        code, lines, errors = command.end(number)
        took_s = time.monotonic() - begin

    assert (code, errors) == (0, "")
    assert took_s < 8  # not when a connection ends by itself
    assert len(lines) == 1
    assert lines[0].startswith("served 1 request, ")


def test_the_network_is_served_to_those_who_know_the_token(served: Path) -> None:
    with running(str(served), "--host", "0.0.0.0", TENSORKEEP_TOKEN="from-there") as command:
        assert socket.gethostname() in command.url
        url = command.url.replace(socket.gethostname(), "127.0.0.1")
        assert get(url, "/bytes").status == 401
        assert get(url, "/bytes", Authorization="Bearer from-there", Host="weights.lab").status == 200
        _, lines, errors = command.end()

    assert "from-there" not in command.line + "".join(lines) + errors
    assert errors.startswith("warning: the token and all data cross the network unencrypted")


def test_the_network_is_served_to_all_on_request(served: Path) -> None:
    with running(str(served), "--host", "0.0.0.0", "--public") as command:
        assert command.end() == (
            0,
            ["served 0 requests, 0 B"],
            "warning: everyone who can reach this machine can read the directory\n",
        )


def test_nobody_reads_its_output_any_more(served: Path) -> None:
    with running(str(served)) as command:
        command.process.stdout.close()
        get(command.url, "/bytes")
        with suppress(OSError):  # it may have ended already
            get(command.url, "/bytes")

        assert command.process.wait(10) == 141


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "No such file or directory: missing"),
        (["pyproject.toml"], r"not a directory \(pyproject\.toml\): found a file"),
        (
            [".", "--host", "0.0.0.0"],
            r"\(--token\) lets in those who send it; public=True \(--public\) lets in everyone",
        ),
        ([".", "--token", "two words"], r"the token \(--token\) cannot be sent in a header"),
        ([".", "--port", "99999"], "the port is invalid: expected 0 to 65,535, found 99,999"),
        ([".", "--connections", "0"], "more than 0"),
        ([".", "--host", "no.such.host.invalid"], r"could not listen \(no\.such\.host\.invalid:8000\)"),
        ([], "Missing argument"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    assert main(["serve", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(f"error: .*{message}.*\n", errors)


def test_a_port_that_is_taken(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        assert main(["serve", str(served), "--port", port]) == 2

    assert capsys.readouterr().err == f"error: could not listen (127.0.0.1:{port}): Address already in use\n"


def test_few_descriptors_mean_few_connections(served: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
        f"from tensorkeep.cli import main; main(['serve', {str(served)!r}, '--port', '0'])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "warning: the system's limit on open files allows only 12 connections\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_without_aiohttp_the_message_says_what_to_install(served: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("aiohttp.py").write_text("raise ImportError('no aiohttp here')")
    done = subprocess.run(
        [*COMMAND, str(served)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=False,
    )

    assert done.returncode == 2
    assert "pip install 'tensorkeep[serve]'" in done.stderr


def test_no_command_but_this_one_pays_for_it() -> None:
    code = "import sys, tensorkeep.cli; print([name for name in sys.modules if name in {'aiohttp', 'asyncio'}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
