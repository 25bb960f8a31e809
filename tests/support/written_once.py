"""Files that slow programs write: once in a run of the tests, for all of its processes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

_FOLDER = "TENSORKEEP_TESTS_FOLDER"
"""The environment variable with the folder of these files."""


def shared_folder() -> Path:
    """Return a folder that processes started from here share; the first one makes it, and removes it at its end."""
    if _FOLDER not in os.environ:
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="tensorkeep-tests-")
        atexit.register(shutil.rmtree, os.environ[_FOLDER], ignore_errors=True)
    return Path(os.environ[_FOLDER])


def written_once(name: str, write: Callable[[Path], object]) -> Path:
    """Return a directory that `write` has filled, in this process or in another."""
    directory = shared_folder() / name
    complete = directory.with_suffix(".complete")
    with FileLock(directory.with_suffix(".lock")):
        if not complete.exists():
            shutil.rmtree(directory, ignore_errors=True)  # what a failed attempt left
            directory.mkdir()
            write(directory)
            complete.touch()
    return directory
