"""Removes secrets from text: users, passwords and queries of URLs, which may be signatures. Pure."""

from __future__ import annotations

import re
from typing import Final

_URLS: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/{1,2}\S+")
"""URLs anywhere in a text, also with one slash, as `pathlib` makes them; better too much than too little."""

_split: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+:/{1,2})(.*)", re.DOTALL).fullmatch
_is_port: Final = re.compile(r"[0-9]*").fullmatch


def redacted(text: str) -> str:
    """Remove user, password and query from each URL in a text."""
    return _URLS.sub(lambda found: shown_url(found[0]), text) if ":/" in text else text


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    found = _split(url)
    if found is None:
        return url
    scheme, rest = found.groups()
    rest = re.split("[?#]", rest, maxsplit=1)[0]
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    if "@" in path and not _is_port(authority.partition(":")[2]):  # a password with a slash in it
        return scheme + rest.rpartition("@")[2]
    return f"{scheme}{host}{slash}{path}"
