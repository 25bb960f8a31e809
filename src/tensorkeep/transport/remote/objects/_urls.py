"""URLs: recognized, joined and split. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

WEB: Final = frozenset({"http", "https"})
BUCKETS: Final = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"})

_URL: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")


def is_url(target: object) -> bool:
    """Whether something is a URL, and not a path, which may begin with a drive letter."""
    return isinstance(target, str) and _URL.match(target) is not None


def is_well_formed(url: str) -> bool:
    """Whether a URL of a server or bucket names it, and the port, if any, is a number."""
    if scheme_of(url) not in WEB | BUCKETS:  # they have rules of their own
        return True
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is parsed here
    except ValueError:
        return False
    return bool(parts.hostname)


def scheme_of(url: str) -> str:
    """Return the scheme in lower case."""
    return url.partition("://")[0].lower()


def has_escapes(url: str) -> bool:
    """Whether URLs of a scheme are percent-encoded: `%20` means a space."""
    return scheme_of(url) in WEB | BUCKETS


def join_url(url: str, name: str) -> str:
    """Join a name to a URL; a query, such as a token, stays at the end."""
    before, mark, query = _without_query(url)
    directory = before if before.endswith("/") else f"{before}/"  # the root of `memory://` has no other slashes
    return f"{directory}{quote(name) if has_escapes(url) else name}{mark}{query}"


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of the directory, and the name in it."""
    before, mark, query = _without_query(url)
    root = len(scheme_of(url)) + len("://")
    directory, slash, name = before[root:].rstrip("/").rpartition("/")
    return f"{before[:root]}{directory or slash}{mark}{query}", unquote(name) if has_escapes(url) else name


def _without_query(url: str) -> tuple[str, str, str]:
    """Split at the `?`, if a scheme has queries."""
    return url.partition("?") if scheme_of(url) in {"http", "https"} else (url, "", "")


def base_and_path(url: str) -> tuple[str, str]:
    """Return the URL of the server or bucket, including the user, and the decoded path on it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", "")), unquote(parts.path).strip("/")
