"""Gets Chromium for the tests of pages: `python tests/support/get_chromium.py`.

Where the system has one, that is used. Elsewhere Debian's package is installed by root; without root, it and what it
needs beyond the system are unpacked into `.venv/chromium`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".venv" / "chromium"
HOW = f"python {Path('tests', 'support', 'get_chromium.py')} gets it, with apt-get"

_APT = ("apt-get", "-qq", "--no-install-recommends", "-o", "APT::Sandbox::User=root")
_PACKAGES = ("chromium", "fonts-dejavu-core")
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "Google Chrome")

_MAC = "/Applications/Google Chrome.app/Contents/MacOS"

_RUN = """#!/bin/sh
export LD_LIBRARY_PATH='{libraries}' FONTCONFIG_PATH='{folder}/etc/fonts' XDG_DATA_HOME='{folder}/usr/share'
exec '{folder}/usr/lib/chromium/chromium' "$@"
"""


def find_chromium() -> str | None:
    """Return the path of a binary, or None where there is none."""
    path = os.pathsep.join([str(FOLDER), os.environ.get("PATH", ""), "/usr/bin", "/snap/bin", _MAC])
    return next(filter(None, (shutil.which(name, path=path) for name in _NAMES)), None)


def install() -> None:
    """Install Debian's packages."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*_APT, "update"], env=environment, check=False)
    subprocess.run([*_APT, "install", "--yes", *_PACKAGES], env=environment, check=True, stdout=subprocess.DEVNULL)


def unpack(*options: str) -> None:
    """Unpack Debian's packages, and those they need that the system lacks, into `.venv/chromium`."""
    listed = subprocess.run(
        [*_APT, *options, "--simulate", "install", *_PACKAGES], check=True, capture_output=True, text=True
    )
    missing = [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("Inst ")]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*_APT, "download", *missing], cwd=folder, check=True)
        for package in Path(folder).glob("*.deb"):
            FOLDER.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg", "-x", str(package), str(FOLDER)], check=True)
    libraries = {str(file.parent) for ending in ("*.so", "*.so.*") for file in FOLDER.rglob(ending)}
    program = FOLDER / "chromium"
    program.write_text(_RUN.format(folder=FOLDER, libraries=":".join(sorted(libraries))), encoding="utf-8")
    program.chmod(0o755)


def get_chromium() -> None:
    """Install it as root, or else unpack it."""
    if os.geteuid() == 0:
        try:
            install()
        except subprocess.CalledProcessError:
            unpack()
    else:
        unpack()


if __name__ == "__main__" and find_chromium() is None:
    if shutil.which("apt-get") is None:
        print("no Chromium, so the tests of `tensorkeep view` will fail: install it", file=sys.stderr)
    else:
        try:
            get_chromium()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no Chromium, so the tests of `tensorkeep view` will fail: {error}", file=sys.stderr)
