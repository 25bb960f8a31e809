"""Gets Azurite, an emulator of Azure blob storage, for the tests: `python tests/support/remote/get_azurite.py`.

It needs npm; where there is none, or no network, it says so, and the tests of Azure are skipped with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "3.35.0"
FOLDER = Path(__file__).parents[3] / ".venv" / "azurite"
HOW = f"python {Path('tests', 'support', 'remote', 'get_azurite.py')} gets it, with npm"


def find_azurite() -> str | None:
    """Return the path of the program, or None where there is none."""
    path = os.pathsep.join([str(FOLDER / "node_modules" / ".bin"), os.environ.get("PATH", "")])
    return shutil.which("azurite-blob", path=path)


def get_azurite() -> None:
    """Install the package into `.venv/azurite`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(FOLDER), f"azurite@{VERSION}"],
        check=True,
        timeout=300,
    )


if __name__ == "__main__" and find_azurite() is None:
    if shutil.which("npm") is None:
        print("no npm, so the tests of Azure will be skipped", file=sys.stderr)
    else:
        try:
            get_azurite()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no Azurite, so the tests of Azure will be skipped: {error}", file=sys.stderr)
