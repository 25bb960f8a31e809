"""nginx over a directory, and a connection to it with a long delay."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["start_nginx", "start_slow_line"]

_NGINX_FOLDER = Path(__file__).parents[1] / ".venv" / "nginx" / "usr" / "sbin"
_HOW = "nginx is missing: python tests/support/remote/get_nginx.py gets it, without root"

_CONFIGURATION = """
worker_processes 1; daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 512; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
    client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
    uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""

_SLOW_LINE = """
import os, socket, sys, threading, time
port, delay_s = int(sys.argv[1]), float(sys.argv[2])

def answers(server, client):  # spliced, so that the line itself is as fast as without it
    taken, given = os.pipe()
    try:
        while n := os.splice(server.fileno(), given, 2**20):
            while n:
                n -= os.splice(taken, client.fileno(), n)
    except OSError:
        pass
    finally:
        os.close(taken)
        os.close(given)
        client.close()

def line(client):
    with socket.create_connection(("127.0.0.1", port)) as server:
        threading.Thread(target=answers, args=(server, client), daemon=True).start()
        try:
            while request := client.recv(2**16):
                time.sleep(delay_s)
                server.sendall(request)
        except OSError:
            pass

listening = socket.create_server(("127.0.0.1", 0), backlog=256)
print(listening.getsockname()[1], flush=True)
while True:
    client, _ = listening.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=line, args=(client,), daemon=True).start()
"""


def start_nginx(root: Path) -> int:
    """Serve a directory until this process ends, and return the port on the loopback.

    Raises:
        RuntimeError: If nginx is not installed, or does not answer.
    """
    path = os.pathsep.join([str(_NGINX_FOLDER), os.environ.get("PATH", ""), "/usr/sbin"])
    binary = shutil.which("nginx", path=path)
    if binary is None:
        raise RuntimeError(_HOW)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    Path(folder, "conf").write_text(_CONFIGURATION.format(folder=folder, port=port, root=root))
    _until_the_end(subprocess.Popen([binary, "-e", f"{folder}/errors", "-c", f"{folder}/conf"]))
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return port
    raise RuntimeError("nginx does not answer")


def start_slow_line(port: int, delay_s: float) -> int:
    """Forward requests from another port, each after a delay; return that port.

    Args:
        port: Where the server is.
        delay_s: Seconds before a request is forwarded; responses are not delayed.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_LINE, str(port), str(delay_s)], stdout=subprocess.PIPE, text=True
    )
    _until_the_end(process)
    assert process.stdout is not None
    return int(process.stdout.readline())


def _until_the_end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    atexit.register(process.wait)
    atexit.register(process.terminate)
