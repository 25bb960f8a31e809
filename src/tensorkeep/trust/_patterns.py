"""Which paths and URLs a rule of a policy is about. Pure but for symbolic links, which are resolved.

`*` is any text without `/`, `**` any text, `?` one character. A pattern with `://` is for URLs, any other for local
paths; `**` alone is for both.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Final, NoReturn
from urllib.parse import unquote, urlsplit

from tensorkeep.errors import TrustError
from tensorkeep.transport import RemotePath, is_remote

EVERYTHING: Final = "**"
_LOCAL_SCHEMES: Final = frozenset({"file", "local"})
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_parts_of = re.compile(r"(\*\*|\*|\?)").split
_has_wildcard = re.compile(r"[*?]").search
_is_hidden = re.compile(r"[\\\x00-\x1f\x7f]|%(?:2e|2f|5c)", re.IGNORECASE).search
_without_brackets = partial(re.compile(r"\[[^\]]*\]").sub, "")


def place_of(path: str) -> str:
    """Return the one text by which patterns know a path or URL."""
    if not is_remote(path):
        return os.path.realpath(path)
    remote = RemotePath.of(path)
    url, parts = str(remote), urlsplit(remote)
    steps = unquote(parts.path)
    if parts.scheme.lower() in _LOCAL_SCHEMES:
        _refuse(url, "a path instead of a URL")
    if not remote.is_shown_whole:
        _refuse(url, "no user name in it")
    if not {".", ".."}.isdisjoint(steps.split("/")) or _is_hidden(steps):
        _refuse(url, "no `..`, backslashes, control characters or characters that are encoded twice")
    if "::" in _without_brackets(url):
        _refuse(url, "one URL, not one inside another")
    return _plain(parts.scheme, parts.netloc, steps)


def _plain(scheme: str, host: str, path: str) -> str:
    """Return the text of a URL: with one slash between steps, and its host without capitals or its default port."""
    scheme, host = scheme.lower(), host.lower().removesuffix(":")
    host = host.removesuffix(_DEFAULT_PORTS.get(scheme, ":"))
    return f"{scheme}://{host.removesuffix('.')}{re.sub('/+', '/', path)}".rstrip("/")


def _refuse(url: str, expected: str) -> NoReturn:
    raise TrustError("a policy cannot tell where this URL leads", path=url, expected=expected, found=url)


def is_matched(place: str, pattern: str) -> bool:
    """Say whether a pattern is about a place."""
    if pattern == EVERYTHING:
        return True
    return ("://" in pattern) == ("://" in place) and is_like(pattern.rstrip("/"), place)


def absolute(pattern: str, folder: str) -> str:
    """Return a pattern that depends on no working directory; relative ones begin at the folder of the policy."""
    if pattern == EVERYTHING:
        return pattern
    if "://" in pattern:
        scheme, _, rest = pattern.partition("://")
        host, slash, path = rest.partition("/")
        return _plain(scheme, host, slash + path)
    path = os.path.join(folder, os.path.expanduser(pattern))
    wildcard = _has_wildcard(path)
    fixed = path[: wildcard.start()].rpartition(os.sep)[0] if wildcard else path
    return os.path.realpath(fixed or os.sep).rstrip(os.sep) + path[len(fixed) :]


def is_like(pattern: str, text: str) -> bool:
    """Say whether a text matches a pattern, in time proportional to the lengths of both.

    Part by part, it keeps where in the text the pattern so far may end.
    """
    ends = {0}
    for part in filter(None, _parts_of(pattern)):
        if part == "**":
            ends = set(range(min(ends), len(text) + 1))
        elif part == "*":
            ends = _within_steps(text, ends)
        elif part == "?":
            ends = {end + 1 for end in ends if text[end : end + 1] not in {"", "/"}}
        else:
            ends = {end + len(part) for end in ends if text.startswith(part, end)}
        if not ends:
            return False
    return len(text) in ends


def _within_steps(place: str, ends: set[int]) -> set[int]:
    """Return every position that is reached from some of these without passing a slash."""
    found = set[int]()
    is_open = False
    for position in range(len(place) + 1):
        is_open = position in ends or (is_open and place[position - 1] != "/")
        if is_open:
            found.add(position)
    return found
