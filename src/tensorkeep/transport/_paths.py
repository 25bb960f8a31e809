"""Operations on paths and URLs alike: join, split, list, exists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tensorkeep.errors import (
    AccessDeniedError,
    SourceMissingError,
    TensorkeepError,
    as_transport_error,
)
from tensorkeep.transport.remote import RemotePath, is_url, refuse_damaged_url

_has_suffix = re.compile(r".*\.[A-Za-z][A-Za-z0-9]{0,14}").fullmatch


def is_remote(path: str) -> bool:
    """Whether a path is a URL."""
    return is_url(path)


def is_in_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL, and not one of a local file."""
    text = os.fspath(path)
    return is_remote(text) and not text.startswith("file://")


def join(directory: str, name: str) -> str:
    """Join a name to a directory."""
    return RemotePath.of(directory).joined(name) if is_url(directory) else os.path.join(directory, name)


def split(path: str) -> tuple[str, str]:
    """Split into directory and name."""
    return RemotePath.of(path).split() if is_url(path) else os.path.split(path)


def without_secrets(path: str) -> str:
    """Return a path that can be shown: a URL becomes a `RemotePath`, whose text has no secrets."""
    return RemotePath.of(path) if is_url(path) else path


def check_writable(path: str) -> None:
    """Refuse a URL that cannot be written to."""
    refuse_damaged_url(path)
    if is_url(path):
        RemotePath.of(path).check_writable()


@contextmanager
def listing_cache(path: str) -> Iterator[str]:
    """Yield the same path; a URL caches answers in the block, so that no request is made twice."""
    if not is_url(path):
        yield path
        return
    with RemotePath.of(path).listing_cache() as cached:
        try:
            yield cached
        except TensorkeepError as error:
            error.path = error.path and str(error.path)  # plain text, without the options of the path
            raise


def is_directory(path: str) -> bool:
    """Whether a path is a directory; a URL is one if it ends with a slash, or its name has no suffix.

    A suffix begins with a letter: `Llama-3.1-8B` has none.
    """
    if not is_url(path):
        return os.path.isdir(path)
    return path.endswith("/") or not _has_suffix(RemotePath.of(path).split()[1])


def is_file(path: str) -> bool:
    """Whether a path is a file."""
    return exists(path) if is_url(path) else os.path.isfile(path)


def exists(path: str) -> bool:
    """Whether a path exists; for a URL, whether it is a file."""
    if not is_url(path):
        return os.path.exists(path)
    try:
        RemotePath.of(path).open().close()
    except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny access to missing files
        return False
    return True


def identity(path: str) -> tuple[object, ...]:
    """Return a value that changes when the file is replaced; empty for no file."""
    try:
        if is_url(path):
            return (RemotePath.of(path).version(),)
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def forget_listing(path: str) -> None:
    """Drop what `listing_cache` keeps."""
    if is_url(path):
        RemotePath.of(path).forget()


def list_names(directory: str) -> list[str] | None:
    """Return the sorted names in a directory; None if a server cannot list it."""
    if is_url(directory):
        return RemotePath.of(directory).names()
    with as_transport_error("could not read the directory", directory):
        return sorted(os.listdir(directory or os.curdir))


def sizes_below(directory: str) -> dict[str, int] | None:
    """Return the size of each file below the directory of a URL, by its path there; None if a server lists none."""
    return RemotePath.of(directory).sizes()


def walk(directory: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a directory tree, as `os.walk`; yield nothing below a URL."""
    if not is_url(directory):
        yield from os.walk(directory)
