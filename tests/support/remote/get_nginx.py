"""Gets nginx for the tests of remote reads, without root: `python tests/support/remote/get_nginx.py`.

Where the system has one, that is used. Elsewhere Debian's package is unpacked into `.venv/nginx`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[3] / ".venv" / "nginx"
HOW = f"python {Path('tests', 'support', 'remote', 'get_nginx.py')} gets it, with apt-get and dpkg, without root"


def find_nginx() -> str | None:
    """Return the path of a binary, or None where there is none."""
    path = os.pathsep.join([str(FOLDER / "usr" / "sbin"), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which("nginx", path=path)


def get_nginx() -> None:
    """Unpack Debian's package into `.venv/nginx`."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq", "nginx"], cwd=folder, check=True
        )
        (package,) = Path(folder).glob("nginx_*.deb")
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg", "-x", str(package), str(FOLDER)], check=True)


if __name__ == "__main__" and find_nginx() is None:
    if shutil.which("apt-get") is not None:
        get_nginx()
    elif sys.platform == "linux":
        sys.exit("nginx is needed by the tests: install it, by dnf, apk or the like")
