"""A real nginx on a port of the loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.remote import get_nginx

CONFIGURATION = """
worker_processes 1; daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 512; }}
http {{
    log_format spans '$request_uri $status $http_range $body_bytes_sent';
    access_log {folder}/log spans;
    default_type application/octet-stream; keepalive_requests 100000;
    client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
    uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
    server {{ listen 127.0.0.1:{port}; root {root};
{locations}
    }}
}}
"""


class Nginx:
    """A server that runs.

    Attributes:
        host: Its address and port.
    """

    def __init__(self, host: str, folder: Path) -> None:
        self.host = host
        self._folder = folder

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    def log(self) -> list[tuple[str, int, str, int]]:
        """Return path, status, range and bytes of each answer so far."""
        lines = [line.split() for line in self._folder.joinpath("log").read_text().splitlines()]
        return [(path, int(status), span, int(nbytes)) for path, status, span, nbytes in lines]


@contextmanager
def running_nginx(root: Path, locations: str = "") -> Iterator[Nginx]:
    """Run nginx over a directory.

    Args:
        root: What it serves.
        locations: More of the configuration.
    """
    binary = get_nginx.find_nginx()
    if binary is None:
        if sys.platform != "linux":
            pytest.skip("nginx is not installed, and is easy to get on Linux only")
        pytest.fail(f"nginx is missing: {get_nginx.HOW}", pytrace=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = CONFIGURATION.format(folder=folder, port=port, root=root, locations=locations)
        folder.joinpath("conf").write_text(text)
        process = subprocess.Popen([binary, "-e", f"{folder}/errors", "-c", f"{folder}/conf"])
        try:
            _wait_for(port, process)
            yield Nginx(f"127.0.0.1:{port}", folder)
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        assert process.poll() is None, "nginx ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("nginx does not answer")
