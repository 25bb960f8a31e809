"""Files that slow programs write: once in a run of the tests, for all of its processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

_FOLDER = "TENSORKEEP_TESTS_FOLDER"
"""The environment variable with the folder of these files."""


@contextmanager
def shared_folder() -> Iterator[None]:
    """Make a folder that processes started from here share, unless this one was started so itself."""
    if _FOLDER in os.environ:
        yield
        return
    os.environ[_FOLDER] = tempfile.mkdtemp(prefix="tensorkeep-tests-")
    try:
        yield
    finally:
        shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)


def written_once(name: str, write: Callable[[Path], object]) -> Path:
    """Return a directory that `write` has filled, in this process or in another."""
    directory = Path(os.environ[_FOLDER], name)
    complete = directory.with_suffix(".complete")
    with FileLock(directory.with_suffix(".lock")):
        if not complete.exists():
            shutil.rmtree(directory, ignore_errors=True)  # what a failed attempt left
            directory.mkdir()
            write(directory)
            complete.touch()
    return directory
