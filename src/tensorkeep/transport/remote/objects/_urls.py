"""URLs: told from paths, taken apart, and shown without what must stay secret. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

_URL: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")


def is_url(target: object) -> bool:
    """Say whether something is a URL, and not a path, such as one that begins with a drive."""
    return isinstance(target, str) and _URL.match(target) is not None


def is_well_formed(url: str) -> bool:
    """Say whether a URL has a host, and a port that is a number, as far as it has any."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is parsed here
    except ValueError:
        return False
    return bool(parts.hostname) or scheme_of(url) not in {"http", "https"}


def scheme_of(url: str) -> str:
    """Return what stands before `://`, in lower case."""
    return url.partition("://")[0].lower()


def has_escapes(url: str) -> bool:
    """Say whether `%20` in a URL stands for a space, and not for itself."""
    return scheme_of(url) in {"http", "https", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"}


def join_url(url: str, name: str) -> str:
    """Return the URL of something that stands below another; a query, such as a token, stays at the end."""
    before, mark, query = _without_query(url)
    directory = before if before.endswith("/") else f"{before}/"  # the root of `memory://` has no other slashes
    return f"{directory}{quote(name) if has_escapes(url) else name}{mark}{query}"


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of what a thing stands in, and its name."""
    before, mark, query = _without_query(url)
    root = len(scheme_of(url)) + len("://")
    directory, slash, name = before[root:].rstrip("/").rpartition("/")
    return f"{before[:root]}{directory or slash}{mark}{query}", unquote(name) if has_escapes(url) else name


def _without_query(url: str) -> tuple[str, str, str]:
    """Return what stands before the query, the mark, and the query; only the web has any."""
    return url.partition("?") if scheme_of(url) in {"http", "https"} else (url, "", "")


def base_and_path(url: str) -> tuple[str, str]:
    """Return the URL of the server or bucket, with its user, and the path on it, without escapes."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", "")), unquote(parts.path).strip("/")
