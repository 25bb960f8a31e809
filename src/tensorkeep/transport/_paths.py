"""Paths and URLs alike: joined, split, listed, looked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tensorkeep.errors import (
    AccessDeniedError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.transport.remote import RemotePath, is_url

_has_suffix = re.compile(r".*\.[A-Za-z][A-Za-z0-9]{0,14}").fullmatch


def is_remote(path: str) -> bool:
    """Say whether a path is a URL."""
    return is_url(path)


def join(directory: str, name: str) -> str:
    """Return the path of something in a directory."""
    return RemotePath.of(directory).joined(name) if is_url(directory) else os.path.join(directory, name)


def split(path: str) -> tuple[str, str]:
    """Return the directory that something is in, and its name."""
    return RemotePath.of(path).split() if is_url(path) else os.path.split(path)


def without_secrets(path: str) -> str:
    """Return a path that shows nothing that must stay secret: the same, or of a URL one that keeps it to itself."""
    return RemotePath.of(path) if is_url(path) else path


def refuse_url(path: str, *, hint: str = "tensorkeep.save and tensorkeep.save_checkpoint write to stores") -> None:
    """Refuse a URL where only a path will do."""
    if is_url(path):
        raise UnsupportedError(
            "this works on a disk only",
            path=without_secrets(path),
            expected="a path",
            found="a URL",
            hint=hint,
        )


def check_writable(path: str) -> None:
    """Refuse a URL to which nothing can be written."""
    if is_url(path):
        RemotePath.of(path).check_writable()


@contextmanager
def listing_cache(path: str) -> Iterator[str]:
    """Give the same path, of which nothing is asked twice in the block, where each question is a request."""
    if not is_url(path):
        yield path
        return
    with RemotePath.of(path).listing_cache() as remembered:
        try:
            yield remembered
        except TensorkeepError as error:
            error.path = error.path and str(error.path)  # the text alone, without what the path knows
            raise


def is_directory(path: str) -> bool:
    """Say whether a path stands for a directory; of a URL its end says so: a slash, or a name without a suffix.

    A suffix begins with a letter: `Llama-3.1-8B` has none.
    """
    if not is_url(path):
        return os.path.isdir(path)
    return path.endswith("/") or not _has_suffix(RemotePath.of(path).split()[1])


def is_file(path: str) -> bool:
    """Say whether a file stands at a path."""
    return exists(path) if is_url(path) else os.path.isfile(path)


def exists(path: str) -> bool:
    """Say whether anything stands at a path; of a URL, a file."""
    if not is_url(path):
        return os.path.exists(path)
    try:
        RemotePath.of(path).open().close()
    except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed answer so for what is missing
        return False
    return True


def identity(path: str) -> tuple[object, ...]:
    """Return what changes when the file at a path is replaced; nothing where there is none."""
    try:
        if is_url(path):
            return (RemotePath.of(path).version(),)
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def forget_listing(path: str) -> None:
    """Ask anew for what `listing_cache` keeps."""
    if is_url(path):
        RemotePath.of(path).forget()


def list_names(directory: str) -> list[str] | None:
    """Return the names of what a directory holds, in their order."""
    if is_url(directory):
        return RemotePath.of(directory).names()
    with as_transport_error("could not read the directory", directory):
        return sorted(os.listdir(directory or os.curdir))


def walk(directory: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Go through a directory and those below; of a URL, only the directory itself."""
    if not is_url(directory):
        yield from os.walk(directory)
