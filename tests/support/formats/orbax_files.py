"""Writes checkpoints with orbax, in a process of its own: it brings in JAX, which must not meet our forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = Path(__file__).with_name("orbax_program.py")


def run_orbax(*arguments: object) -> str:
    """Run a function of `orbax_program`, and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def save_arrays(arrays: dict[str, np.ndarray[Any, Any]], directory: Path) -> None:
    """Save a flat dict of arrays."""
    source = directory.with_name(f"{directory.name}.npz")
    np.savez(source, **arrays)
    run_orbax("save_arrays", source, directory)
    source.unlink()


def files_at(url: str, directory: Path) -> dict[str, bytes]:
    """Return the files of a directory, as a server has them below a name."""
    return {
        f"{url}/{file.relative_to(directory).as_posix()}": file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file()
    }
