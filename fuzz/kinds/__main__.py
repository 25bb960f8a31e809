"""Fuzz every kind of file: `python -m fuzz.kinds --files 5000 --first 0 --only Gguf`.

Exits with status 1 if a broken file gives anything but values or tensorkeep's errors, or exceeds a limit of time or
memory. `--keep FOLDER` keeps such files.
"""

# ruff: noqa: T201 - this is a program that prints

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.kinds.run import Tally, run
from fuzz.kinds.seeds import read_seeds, write_seeds


def main() -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=5_000, help="files of each kind (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first file (default: %(default)s)")
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    parser.add_argument("--keep", type=Path, help="folder for files that fail")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    tally = Tally(arguments.keep)
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        write_seeds(Path(folder) / "seeds")
        seeds = [seed for seed in read_seeds(Path(folder) / "seeds") if arguments.only.lower() in seed.kind.lower()]
        run(seeds, arguments.files, arguments.first, Path(folder) / "broken", tally)
    print(tally.report())
    print(f"{time.perf_counter() - begin:.0f} s", flush=True)
    return 1 if tally.failures else 0


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own is made there


if __name__ == "__main__":
    sys.exit(main())
