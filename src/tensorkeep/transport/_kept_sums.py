"""The SHA-256 that somebody else keeps of a file: a server, huggingface_hub's folders, or a download of ours.

- A server such as the Hub says it with the file.
- A file in huggingface_hub's cache is a link to `blobs/<SHA-256>`.
- `hf download --local-dir` leaves `.cache/huggingface/download/<file>.metadata`, whose second line is the SHA-256 of
  a large file. As for huggingface_hub itself, that is void once the file has been written again.
- `fetch` leaves a note in an extended attribute of the file, with the same rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tensorkeep.transport.remote import RemoteSource
from tensorkeep.transport.sources import ByteSource, LocalFile
from tensorkeep.transport.system import get_xattr_note

_FOLDER: Final = os.path.join(".cache", "huggingface", "download")
_MAX_FOLDERS: Final = 5
"""Folders of a repository that are looked through, and links that are followed."""

_MAX_METADATA_NBYTES: Final = 4096
_LATER_S: Final = 1.0
"""Seconds by which a file may be younger than its metadata, which is written after it."""

_is_sha256 = re.compile(r"[0-9a-f]{64}").fullmatch
_match_note = re.compile(r'"sha256":"([0-9a-f]{64})"').search


def kept_sha256(source: ByteSource) -> str | None:
    """Return the SHA-256 that somebody else keeps of a file, as 64 hexadecimal digits; None if nobody is known to."""
    if isinstance(source, RemoteSource):
        return source.version.sha256
    if not isinstance(source, LocalFile):
        return None
    path = source.name
    return _of_blob(path) or _of_local_folder(path) or _of_fetch(path)


def _of_blob(path: str) -> str | None:
    """Return the name of the blob that a link in huggingface_hub's cache leads to."""
    for _ in range(_MAX_FOLDERS):
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:
            return None
        folder, name = os.path.split(path)
        if _is_sha256(name) and os.path.basename(folder) == "blobs":
            return name
    return None


def _of_local_folder(path: str) -> str | None:
    """Return what a download to a directory has noted of one of its files."""
    for directory, name in _places(path):
        metadata = os.path.join(directory, _FOLDER, f"{name}.metadata")
        with suppress(OSError, ValueError, UnicodeDecodeError):
            with open(metadata, encoding="ascii") as file:
                _, etag, time = file.read(_MAX_METADATA_NBYTES).splitlines()[:3]
            if _is_sha256(etag) and os.stat(path).st_mtime - _LATER_S <= float(time):
                return etag
    return None


def _places(path: str) -> Iterator[tuple[str, str]]:
    """Give directories that may be the one of the download, each with the name of the file in it."""
    directory, name = os.path.split(os.path.abspath(path))
    for _ in range(_MAX_FOLDERS):
        yield directory, name
        directory, folder = os.path.split(directory)
        name = os.path.join(folder, name)


def _of_fetch(path: str) -> str | None:
    found = _match_note(get_xattr_note(path) or "")
    return found and found[1]
