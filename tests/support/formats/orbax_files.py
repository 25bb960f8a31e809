"""Writes checkpoints with orbax, in a process of its own: it brings in JAX, which must not meet our forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
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


def save_arrays(arrays: dict[str, np.ndarray[Any, Any]], directory: Path, form: str = "ocdbt-zarr2") -> None:
    """Save a flat dict of arrays, in a database or in files (`"files-zarr2"`), as zarr 2 or 3 (`"ocdbt-zarr3"`)."""
    source = directory.with_name(f"{directory.name}.npz")
    np.savez(source, **arrays)
    run_orbax("save_arrays", source, directory, form)
    source.unlink()


def files_at(url: str, directory: Path) -> dict[str, bytes]:
    """Return the files of a directory, as a server has them below a name."""
    return {
        f"{url}/{file.relative_to(directory).as_posix()}": file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file()
    }


def write_zarr(
    directory: Path, array: np.ndarray[Any, Any], chunk: tuple[int, int], pack: Callable[[bytes], bytes] | None = None
) -> None:
    """Write an array `w` in whole rows of chunks, as zarr 2, packed with Zstandard if there is a function for it."""
    (directory / "w").mkdir(parents=True)
    leaf = {"key_metadata": [{"key": "w", "key_type": 2}], "value_metadata": {"value_type": "jax.Array"}}
    (directory / "_METADATA").write_text(json.dumps({"tree_metadata": {"('w',)": leaf}, "use_zarr3": False}))
    (directory / "_CHECKPOINT_METADATA").write_text('{"commit_timestamp_nsecs": 1}')
    layout = {"shape": array.shape, "chunks": chunk, "dtype": array.dtype.str, "zarr_format": 2}
    layout["compressor"] = {"id": "zstd"} if pack else None
    (directory / "w" / ".zarray").write_text(json.dumps(layout))
    for at in range(0, len(array), chunk[0]):
        data = array[at : at + chunk[0]].tobytes()
        (directory / "w" / f"{at // chunk[0]}.0").write_bytes(pack(data) if pack else data)
