"""Files that are there already, recognized by size and checksum, so that they are not sent again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint import sha256_of
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.publishing._local_files import LocalFile
from tensorkeep.transport import open_source

_MAX_THREADS: Final = 8


class PublishedFile(msgspec.Struct, frozen=True):
    """A file in a repository.

    Attributes:
        nbytes: Its size.
        sha256: Its SHA-256, if it is in Git LFS.
        git_id: The name that git gives to its content, if it is not.
    """

    nbytes: int
    sha256: str | None = None
    git_id: str | None = None


def unchanged_among(files: Mapping[str, LocalFile], there: Mapping[str, PublishedFile]) -> set[str]:
    """Return the names under which the same bytes are there; reads only files of equal size."""
    candidates = [name for name in files if name in there and there[name].nbytes == files[name].nbytes]
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(candidates))
    same = parallel_map(
        lambda name: _is_same(files[name], there[name]),
        candidates,
        n_threads=n_threads,
        meter=ProgressMeter(None, 0),
    )
    return {name for name, is_same in zip(candidates, same, strict=True) if is_same}


def _is_same(file: LocalFile, published: PublishedFile) -> bool:
    if published.sha256 is not None:
        return (file.sha256 or sha256_of(open_source(file.path, backend="pread"))) == published.sha256
    return published.git_id is not None and _git_id(file) == published.git_id


def _git_id(file: LocalFile) -> str:
    """Return the name that git gives to a small file's content."""
    digest = hashlib.sha1(b"blob %d\0" % file.nbytes, usedforsecurity=False)
    with open(file.path, "rb") as opened:
        digest.update(opened.read(file.nbytes))
    return digest.hexdigest()
