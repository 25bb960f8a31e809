"""Which paths and URLs a rule of a policy is about. Pure but for symbolic links, which are resolved.

`*` is any text without `/`, `**` any text, `?` one character. A pattern with `://` is for URLs, any other for local
paths; `**` alone is for both.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final
from urllib.parse import unquote, urlsplit

from tensorkeep.errors import TrustError
from tensorkeep.transport import is_remote

EVERYTHING: Final = "**"
_has_wildcard = re.compile(r"[*?]").search


def place_of(path: str) -> str:
    """Return the one text by which patterns know a path or URL."""
    if not is_remote(path):
        return os.path.realpath(path)
    parts = urlsplit(str(path))
    steps = unquote(parts.path).split("/")
    if parts.username is not None or "\\" in parts.path or not {".", ".."}.isdisjoint(steps):
        raise TrustError(
            "no policy can say where this URL leads",
            path=path,
            expected="neither `..`, backslashes nor a user name in it",
            found=str(path),
        )
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{unquote(parts.path)}".rstrip("/")


def is_matched(place: str, pattern: str) -> bool:
    """Say whether a pattern is about a place."""
    if pattern == EVERYTHING:
        return True
    return ("://" in pattern) == ("://" in place) and _expression(pattern.rstrip("/")).fullmatch(place) is not None


def absolute(pattern: str, folder: str) -> str:
    """Return a pattern that depends on no working directory; relative ones begin at the folder of the policy."""
    if pattern == EVERYTHING or "://" in pattern:
        return pattern
    path = os.path.join(folder, os.path.expanduser(pattern))
    wildcard = _has_wildcard(path)
    fixed = path[: wildcard.start()].rpartition(os.sep)[0] if wildcard else path
    return os.path.realpath(fixed or os.sep).rstrip(os.sep) + path[len(fixed) :]


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    wild = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(part) or re.escape(part) for part in parts), re.DOTALL)
