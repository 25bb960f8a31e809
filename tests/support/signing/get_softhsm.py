"""Gets SoftHSM for the tests of keys in hardware: `python tests/support/signing/get_softhsm.py`.

Where the system has one, that is used. Elsewhere Debian's packages are unpacked into `.venv/softhsm`, without root.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[3] / ".venv" / "softhsm"
HOW = f"python {Path('tests', 'support', 'signing', 'get_softhsm.py')} gets it, with apt-get and dpkg, without root"

_PACKAGES = ("softhsm2", "libsofthsm2")
_PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")


def find_softhsm() -> tuple[str, str] | None:
    """Return the paths of the module and of the program that fills it, or None where one is missing."""
    ours = FOLDER / "usr"
    modules = [place / "softhsm" / "libsofthsm2.so" for place in (ours / "lib", *map(Path, _PLACES))]
    module = next((str(path) for path in modules if path.exists()), None)
    program = shutil.which("softhsm2-util", path=str(ours / "bin")) or shutil.which("softhsm2-util")
    return (module, program) if module and program else None


def get_softhsm() -> None:
    """Unpack Debian's packages into `.venv/softhsm`."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq", *_PACKAGES]
        subprocess.run(command, cwd=folder, check=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(FOLDER)], check=True)


if __name__ == "__main__" and find_softhsm() is None:
    if shutil.which("apt-get") is not None:
        get_softhsm()
    elif sys.platform == "linux":
        sys.exit("SoftHSM is needed by the tests: install it, by dnf, apk or the like")
