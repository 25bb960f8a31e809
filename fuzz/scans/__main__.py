"""Prove that no reader runs what `scan` calls clean: `python -m fuzz.scans --files 100000 --seed 0`.

Exits with status 1 if a reader did. The number in front of a file makes that file again: `--first NUMBER --files 1`.
"""

# ruff: noqa: T201 - this is a program that prints

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.scans.children import Children, interpreters
from fuzz.scans.run import Tally, run


def main() -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=100_000, help="files to make (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal files (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder for files that differ")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    found, missing = interpreters()
    for version in missing:
        print(f"SKIPPED: Python {version} was not found, so its readers are not asked", flush=True)
    tally = Tally(arguments.keep)
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder, Children(found, Path(folder)) as children:
        for version, libraries in children.libraries.items():
            print(f"Python {version}: {', '.join(['pickle, zipfile, tarfile', *libraries])}", flush=True)
        run(arguments.files, arguments.seed, children, tally, Path(folder), first=arguments.first)
    print(tally.report())
    print(f"seed {arguments.seed}, {time.perf_counter() - begin:.0f} s", flush=True)
    return 1 if tally.failures else 0


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own is made there


if __name__ == "__main__":
    sys.exit(main())
