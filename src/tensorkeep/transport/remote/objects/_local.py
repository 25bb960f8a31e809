"""Local paths, where a URL would become a directory named `s3:`."""

from __future__ import annotations

import os
import re
from typing import Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.texts import shown_url
from tensorkeep.transport.remote.objects._urls import is_url

_FILE_URL: Final = "file://"
_COPY: Final = "Use a local directory, and copy it from there: what is saved there is complete at any time"
_SAVE: Final = "tensorkeep.save and tensorkeep.save_checkpoint write to stores"

_is_chained = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+::").match
"""URLs of fsspec such as `simplecache::s3://bucket/model`."""
_without_a_slash = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+:)[/\\][^/\\]").match
"""What pathlib makes of a URL."""


def local_path(path: str | os.PathLike[str], *, hint: str = _COPY) -> str:
    """Return a local path as text, with `~` and `file://` resolved, or refuse a URL."""
    text = os.fsdecode(path).removeprefix(_FILE_URL)
    refuse_url(text, hint=hint)
    return os.path.expanduser(text)


def refuse_url(path: str, *, hint: str = _SAVE) -> None:
    """Refuse a URL where only a local path is supported."""
    refuse_damaged_url(path)
    if is_url(path) or _is_chained(path):
        raise UnsupportedError(
            "this works with local paths only",
            path=shown_url(path),
            expected="a path",
            found="a URL",
            hint=hint,
        )


def refuse_damaged_url(path: str) -> None:
    """Refuse a URL that pathlib took for a path, unless there is a directory of that name."""
    found = None if is_url(path) else _without_a_slash(path)
    if found is not None and not os.path.lexists(found[1]):
        raise UnsupportedError(
            "this looks like a URL that pathlib took for a path",
            path=path,
            expected=f"{found[1]}//",
            found=f"{found[1]}/",
            hint="Pass URLs as text",
        )
